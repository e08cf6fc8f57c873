"""Authentication of users, and the tokens that the server issues.

- :mod:`authentication`: client certificates, bearer tokens, anonymous users, impersonation;
- :mod:`service_account_tokens`: issue and verification of ServiceAccount tokens;
  :mod:`signing_keys`: their signing keys;
- :mod:`static_tokens`: token file and bootstrap tokens; :mod:`users`: the user type.

Never here: what a user may do (:mod:`kube_api_server.rbac`).
"""
