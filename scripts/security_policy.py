"""Schema and descriptions of SecurityPolicy of ``gatehouse.dev``."""

from __future__ import annotations

from openapi_schemas import BOOLEAN, COUNT, SECURE_URL, Schema, fields, one_of, several
from target_references import REFERENCE, targets

from gatehouse.compiler.frontends.gateway_api.extensions import api_keys, oidc
from gatehouse.compiler.frontends.gateway_api.extensions import security_headers as headers
from gatehouse.compiler.frontends.gateway_api.extensions import security_policies as policies

_REALM: Schema = {"type": "string", "maxLength": 256, "pattern": r"^[^\x00-\x1f\x7f]*$"}
_DURATION: Schema = {"type": "string", "pattern": "^[0-9]{1,4}(ms|s|m|h)$"}
_TOKEN: Schema = {"type": "string", "minLength": 1, "maxLength": 256}
_HEADERS = several(_TOKEN, most=64)

_NETWORKS = several(
    {"type": "string", "maxLength": 64, "pattern": "^[0-9A-Fa-f.:]+(/[0-9]{1,3})?$"},
    least=1,
    most=64,
)

_SERVER = fields(
    "name",
    group={"type": "string", "maxLength": 253},
    kind={"type": "string", "minLength": 1, "maxLength": 63},
    name={"type": "string", "minLength": 1, "maxLength": 253},
    namespace={"type": "string", "minLength": 1, "maxLength": 63},
    port={"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535},
)

_KEY_HEADER: Schema = {"type": "string", "pattern": f"^{api_keys.KEY_HEADER_PATTERN}$"}

_TOKENS = fields(
    "",
    ("has(self.secretRef) != has(self.remote)", "jwt needs either secretRef or remote"),
    (
        "!has(self.refreshInterval) || has(self.remote)",
        "refreshInterval is for remote keys",
    ),
    secretRef=REFERENCE,
    remote=fields("uri", uri=SECURE_URL, caCertificateRefs=several(REFERENCE, most=1)),
    refreshInterval=_DURATION,
    realm=_REALM,
    leeway=_DURATION,
    requiredClaims=several(
        fields(
            "name values",
            name={"type": "string", "minLength": 1, "maxLength": 253},
            values=several(_TOKEN, least=1, most=64),
            header=_KEY_HEADER,
        ),
        most=16,
    ),
)

_RESERVED = ", ".join(f"'{name}'" for name in sorted(oidc.RESERVED_ARGUMENTS))
_PATH: Schema = {"type": "string", "maxLength": 1024, "pattern": f"^{oidc.CALLBACK_PATTERN}$"}

_PROVIDER: Schema = {"type": "string", "maxLength": 1024, "pattern": f"^{oidc.PROVIDER_PATTERN}$"}

_USERS = fields(
    "issuer clientID clientSecretRef",
    (
        f"!has(self.extraAuthArgs) || ![{_RESERVED}].exists(name, name in self.extraAuthArgs)",
        "extraAuthArgs must not have parameters that a login sets itself",
    ),
    issuer=SECURE_URL,
    clientID={
        "type": "string",
        "minLength": 1,
        "maxLength": 1024,
        "pattern": r"^[^\x00-\x1f\x7f]*$",
    },
    clientSecretRef=REFERENCE,
    configURL=_PROVIDER,
    redirectURI=_PATH,
    caCertificateRefs=several(REFERENCE, most=8),
    crlSecretRef=REFERENCE,
    pkce=BOOLEAN,
    scopes=several(_TOKEN | {"pattern": f"^{oidc.SCOPE_PATTERN}$"}, most=32),
    extraAuthArgs={
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {"type": "string", "maxLength": 1024},
    },
    session=fields(
        cookieName={"type": "string", "pattern": f"^{oidc.SESSION_COOKIE_PATTERN}$"},
        timeout=_DURATION,
    ),
    logout=fields(
        uri=_PATH,
        postLogoutURI={
            "type": "string",
            "maxLength": 1024,
            "pattern": f"^{oidc.AFTER_LOGOUT_PATTERN}$",
        },
        frontChannelLogoutURI=_PATH,
        tokenHint=BOOLEAN,
    ),
    requiredClaims=several(
        fields(
            "name",
            ("has(self.values) || has(self.header)", "a claim needs values or a header"),
            name={"type": "string", "minLength": 1, "maxLength": 253},
            values=several(_TOKEN, least=1, most=64),
            header=_KEY_HEADER,
        ),
        most=16,
    ),
)

_KEY_NAMES = several(
    {"type": "string", "pattern": f"^{api_keys.PARAMETER_PATTERN}$"}, least=1, most=8
)

_KEYS = fields(
    "secretRefs extractFrom",
    secretRefs=several(REFERENCE, least=1, most=16),
    extractFrom=several(
        fields(
            "",
            (
                "has(self.headers) || has(self.params) || has(self.cookies)",
                "a source needs headers, params or cookies",
            ),
            headers=several(_KEY_HEADER, least=1, most=8),
            params=_KEY_NAMES,
            cookies=_KEY_NAMES,
        ),
        least=1,
        most=8,
    ),
    clientHeader=_KEY_HEADER,
    sanitize=BOOLEAN,
)

_EXTERNAL = fields(
    "protocol backendRef",
    ("self.protocol == 'HTTP' || !has(self.http)", "http is for protocol HTTP"),
    ("self.protocol == 'GRPC' || !has(self.grpc)", "grpc is for protocol GRPC"),
    protocol=one_of("HTTP", "GRPC"),
    backendRef=_SERVER,
    http=fields(
        path={"type": "string", "maxLength": 1024},
        allowedHeaders=_HEADERS,
        allowedResponseHeaders=_HEADERS,
    ),
    grpc=fields(allowedHeaders=_HEADERS),
    forwardBody=fields(
        "maxSize",
        maxSize={"type": "integer", "format": "int32", "minimum": 0, "maximum": 2**16 - 1},
    ),
)

SPEC = fields(
    "targetRefs",
    (
        "[has(self.basicAuth), has(self.jwt), has(self.apiKeys), has(self.oidc)]"
        ".filter(x, x).size() <= 1",
        "basicAuth, jwt, apiKeys and oidc exclude each other",
    ),
    (
        "!has(self.oidc) || self.targetRefs.all(target, target.kind != 'GRPCRoute')",
        "oidc is not for GRPCRoutes: clients follow no redirects",
    ),
    targetRefs=targets(*policies.SECURITY_TARGETS),
    basicAuth=fields("secretRef", secretRef=REFERENCE, realm=_REALM),
    jwt=_TOKENS,
    apiKeys=_KEYS,
    oidc=_USERS,
    externalAuth=_EXTERNAL,
    clientAddresses=fields(
        "",
        ("has(self.allow) || has(self.deny)", "clientAddresses needs allow or deny"),
        allow=_NETWORKS,
        deny=_NETWORKS,
    ),
    securityHeaders=fields(
        strictTransportSecurity=fields(
            "maxAgeSeconds",
            maxAgeSeconds=COUNT,
            includeSubdomains=BOOLEAN,
            preload=BOOLEAN,
        ),
        contentTypeOptions=one_of(*headers.CONTENT_TYPE_OPTIONS),
        frameOptions=one_of(*headers.FRAME_OPTIONS),
        referrerPolicy=one_of(*headers.REFERRER_POLICIES),
        contentSecurityPolicy={
            "type": "string",
            "maxLength": headers.MAX_CONTENT_POLICY,
            "pattern": f"^{headers.CONTENT_POLICY_PATTERN}$",
        },
    ),
)

_CLAIM_HEADER = (
    "Header that passes the claim to backends. They never get that of a request. Default: none."
)
_REALM_TEXT = f"Realm of the challenge to clients. Default: {policies.DEFAULT_REALM}."

TEXTS = {
    "targetRefs": "Objects that the policy applies to, in its namespace.",
    "targetRefs[].group": "API group of the target.",
    "targetRefs[].kind": "Kind of the target.",
    "targetRefs[].name": "Name of the target.",
    "basicAuth": "Names and passwords (HTTP basic authentication).",
    "basicAuth.secretRef": "Secret whose key auth has a line name:hash for each user.",
    "basicAuth.secretRef.name": "Name of the Secret.",
    "basicAuth.realm": _REALM_TEXT,
    "jwt": "Signed tokens in the header Authorization. They must have the claim exp.",
    "jwt.secretRef": "Secret whose key auth has a JSON Web Key Set.",
    "jwt.secretRef.name": "Name of the Secret.",
    "jwt.remote": "A JSON Web Key Set that the controller fetches.",
    "jwt.remote.uri": "URL of the keys.",
    "jwt.remote.caCertificateRefs": "Secrets with the CA certificates of the server, in the key "
    "ca.crt. Default: those of the controller's system.",
    "jwt.remote.caCertificateRefs[].name": "Name of the Secret.",
    "jwt.refreshInterval": "Interval between two fetches, at least 1s. Default: 5m.",
    "jwt.realm": _REALM_TEXT,
    "jwt.leeway": "Tolerated difference of clocks. Default: 0s.",
    "jwt.requiredClaims": "Claims that a token must have, all of them.",
    "jwt.requiredClaims[].name": "Name of the claim.",
    "jwt.requiredClaims[].values": "Values, one of which the claim must have. Of a list, one entry "
    "must.",
    "jwt.requiredClaims[].header": _CLAIM_HEADER,
    "oidc": "Logins of users at an OpenID Connect provider. Requests of browsers without a session "
    "are redirected there, others get 401.",
    "oidc.issuer": "HTTPS URL of the provider.",
    "oidc.clientID": "ID of the client at the provider.",
    "oidc.clientSecretRef": "Secret whose key client-secret has the secret of the client.",
    "oidc.clientSecretRef.name": "Name of the Secret.",
    "oidc.configURL": "URL of the provider's metadata. Default: "
    "/.well-known/openid-configuration of the issuer.",
    "oidc.redirectURI": "Path or URL to which the provider sends browsers after a login. Default: "
    "/oidc_callback_NAMESPACE_NAME of the policy.",
    "oidc.caCertificateRefs": "Secrets with the CA certificates of the provider, in the key "
    "ca.crt. Default: those of the data plane's system.",
    "oidc.caCertificateRefs[].name": "Name of the Secret.",
    "oidc.crlSecretRef": "Secret whose key ca.crl has revoked certificates.",
    "oidc.crlSecretRef.name": "Name of the Secret.",
    "oidc.pkce": "Use Proof Key for Code Exchange (RFC 7636). Default: true.",
    "oidc.scopes": "Requested scopes. openid is always requested.",
    "oidc.extraAuthArgs": "Additional parameters of the request for a login.",
    "oidc.session": "Sessions of users, in encrypted cookies.",
    "oidc.session.cookieName": "Name of the cookie. Default: GATEHOUSE_ and a digest of the name "
    "of the policy.",
    "oidc.session.timeout": "Time after which a session ends that is not refreshed, at least 1s. "
    "Default: 8h.",
    "oidc.logout": "End of sessions.",
    "oidc.logout.uri": "Path that ends the session of a user. Default: none.",
    "oidc.logout.postLogoutURI": "Path or URL to which browsers go after it. Default: none.",
    "oidc.logout.frontChannelLogoutURI": "Path by which the provider ends a session. Default: "
    "none.",
    "oidc.logout.tokenHint": "Send the ID token to the provider at a logout. Default: false.",
    "oidc.requiredClaims": "Claims that a user must have, all of them. Others get 403.",
    "oidc.requiredClaims[].name": "Name of the claim.",
    "oidc.requiredClaims[].values": "Values, one of which the claim must have. Of a list, one "
    "entry must. Default: any.",
    "oidc.requiredClaims[].header": _CLAIM_HEADER,
    "apiKeys": "Keys of clients. Requests without one get 401.",
    "apiKeys.secretRefs": "Secrets with an entry for each client: its name and its key of up to "
    f"{api_keys.MAX_KEY_CHARACTERS} letters, digits and . _ ~ + / = -.",
    "apiKeys.secretRefs[].name": "Name of the Secret.",
    "apiKeys.extractFrom": "Places of a request that may have a key. The first one that a request "
    "has decides.",
    "apiKeys.extractFrom[].headers": "Headers, with or without Bearer before the key.",
    "apiKeys.extractFrom[].params": "Parameters of the query.",
    "apiKeys.extractFrom[].cookies": "Cookies.",
    "apiKeys.clientHeader": "Header that passes the name of the client to backends. They never get "
    "that of a request. Default: none.",
    "apiKeys.sanitize": "Remove the headers, parameters and cookies of extractFrom from requests "
    "to backends. Default: true.",
    "externalAuth": "An authorization server that is asked about each request.",
    "externalAuth.protocol": "HTTP: the response 200 permits a request. GRPC: "
    "envoy.service.auth.v3.",
    "externalAuth.backendRef": "The server. Another namespace needs a ReferenceGrant for kind "
    "SecurityPolicy of group gatehouse.dev.",
    "externalAuth.backendRef.group": "API group of the server. Default: core.",
    "externalAuth.backendRef.kind": "Kind of the server. Default: Service.",
    "externalAuth.backendRef.name": "Name of the server.",
    "externalAuth.backendRef.namespace": "Namespace of the server. Default: that of the policy.",
    "externalAuth.backendRef.port": "Port of the Service.",
    "externalAuth.http": "Settings for protocol HTTP.",
    "externalAuth.http.path": "Prefix of the path of a check.",
    "externalAuth.http.allowedHeaders": "Headers of a request that the server gets, beside Host, "
    "Authorization and Content-Length.",
    "externalAuth.http.allowedResponseHeaders": "Headers of the response of the server that "
    "backends get in place of those of the client. Default: all. NGINX needs the list.",
    "externalAuth.grpc": "Settings for protocol GRPC.",
    "externalAuth.grpc.allowedHeaders": "Headers of a request that the server gets. Default: all.",
    "externalAuth.forwardBody": "The body that the server gets. Default: none.",
    "clientAddresses": "Addresses of clients that are served. Others get 403.",
    "clientAddresses.allow": "IP addresses or CIDR ranges. Default: all.",
    "clientAddresses.deny": "IP addresses or CIDR ranges that are not served, even if allow has "
    "them.",
    "securityHeaders": "Response headers that tell browsers what a site permits. They replace "
    "those of backends.",
    "securityHeaders.strictTransportSecurity": "Strict-Transport-Security: browsers use HTTPS "
    "only. They ignore the header in responses by HTTP.",
    "securityHeaders.strictTransportSecurity.maxAgeSeconds": "Time for which browsers remember it. "
    "0 ends it.",
    "securityHeaders.strictTransportSecurity.includeSubdomains": "Subdomains, too. Default: false.",
    "securityHeaders.strictTransportSecurity.preload": "Consent to lists that browsers bring "
    "along. Default: false.",
    "securityHeaders.contentTypeOptions": "X-Content-Type-Options: browsers do not guess the type "
    "of a response.",
    "securityHeaders.frameOptions": "X-Frame-Options: who may show a page in a frame.",
    "securityHeaders.referrerPolicy": "Referrer-Policy: which address other sites learn.",
    "securityHeaders.contentSecurityPolicy": "Content-Security-Policy: what a page may load and "
    "run.",
    "externalAuth.forwardBody.maxSize": "Maximum size of a body in bytes. A larger one gets 413.",
}
