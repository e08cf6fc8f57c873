"""The embedded API server: one that kubectl and client libraries take for a real one.

- :mod:`storage`: the log of revisions and what is watched of it;
- :mod:`registry` and :mod:`schema`: which resources there are, what is valid, what is shown;
- :mod:`verbs` and :mod:`lists`: create, update, patch, delete, list, watch, on plain dicts;
- :mod:`authentication`, :mod:`authorization`, :mod:`tokens`, :mod:`reviews`: who may do what;
- :mod:`http`: requests in, responses out; :mod:`discovery`, :mod:`openapi`, :mod:`tables`;
- :mod:`serve`: the process.

A new kind: :mod:`gatehouse.apis.resources`, then :mod:`registry`. Never here: what an object means
to a controller, and anything that imports the rest of Gatehouse.
"""
