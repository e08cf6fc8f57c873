"""HTTP layer of the Kubernetes API.

- :mod:`handler`: authentication, authorization, limits and dispatch of requests;
  :mod:`requests`: request parsing; :mod:`responses`: response construction;
- :mod:`bodies`, :mod:`depth`: decoding of bodies within limits;
- :mod:`resources`: verbs on objects and collections; :mod:`lists`, :mod:`watches`,
  :mod:`selectors`; :mod:`scale`; :mod:`reviews`: resources that are not stored;
- :mod:`negotiation`, :mod:`tables`: representations of objects;
- :mod:`nonresource`: health, version, metrics; :mod:`discovery`; :mod:`openapi_v2`,
  :mod:`openapi_v3` with :mod:`metadata_texts`;
- :mod:`pod_logs`, :mod:`log_timestamps`: Pod logs; :mod:`metrics`; :mod:`audit`.

Never here: what the verbs do to objects (:mod:`kube_api_server.objects`).
"""
