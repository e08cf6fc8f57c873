"""Hostile values of policies: rates, sizes, times, balancing, traces."""

from __future__ import annotations

import base64

from fakes.short_objects import (
    BACKEND,
    Object,
    client,
    cookie,
    hashed,
    limit,
    policy,
    portable,
    portable_rate,
    proxy,
    route,
    secured,
    traced,
    traffic,
    upstream,
)

TRAFFIC_POLICIES: dict[str, list[Object]] = {
    "traffic: cookie of dollar signs": traffic(
        sessionPersistence=cookie(name="$" * 256, path="/" + "$" * 1023)
    ),
    "traffic: cookie of signs": traffic(sessionPersistence=cookie(name="!#$%&'*+.^_`|~-")),
    "traffic: path with semicolon": traffic(sessionPersistence=cookie(path="/; Domain=x")),
    "traffic: path of quotes": traffic(sessionPersistence=cookie(path='/"\\$x%REQ(X)%{}')),
    "traffic: header with dot": traffic(
        sessionPersistence={"type": "Header", "header": {"name": "a.b"}}
    ),
    "traffic: header of the connection": traffic(
        sessionPersistence={"type": "Header", "header": {"name": "Connection"}}
    ),
    "traffic: header and several backends": [
        *traffic(sessionPersistence={"type": "Header", "header": {"name": "a"}})[1:],
        *route({"backendRefs": [BACKEND | {"weight": 1}, {"name": "t", "port": 80, "weight": 2}]}),
    ],
    "traffic: most retries": traffic(
        retryConstraint={"minRetryRate": {"count": 1_000_000, "interval": "1ms"}}
    ),
    "traffic: fewest retries": traffic(
        retryConstraint={
            "budget": {"percent": 0, "interval": "1h"},
            "minRetryRate": {"count": 1, "interval": "1h"},
        }
    ),
    "portable: largest body": portable(client={"maxBodySize": "1Ti"}),
    "portable: no body": portable(client={"maxBodySize": 0}),
    "portable: odd body": portable(client={"maxBodySize": "1.001k"}),
    "portable: body of a fraction": portable(client={"maxBodySize": "0.5"}),
    "portable: body of many digits": portable(client={"maxBodySize": "9" * 16 + "Ti"}),
    "portable: body timeouts": portable(client={"bodyTimeout": "99999h99999h99999h99999h"}),
    "portable: no body timeout": portable(client={"bodyTimeout": "0s"}),
    "portable: longest keep-alive": portable(
        client={
            "keepAlive": {
                "maxRequests": 2**31 - 1,
                "maxLifetime": "9999h",
                "idleTimeout": "9999h",
            }
        }
    ),
    "portable: shortest keep-alive": portable(
        client={"keepAlive": {"maxRequests": 1, "maxLifetime": "1ms", "idleTimeout": "0ms"}}
    ),
    "portable: longest timeouts": portable(
        timeouts={"connect": "9999h", "send": "9999h", "read": "9999h"}
    ),
    "portable: shortest timeouts": portable(
        timeouts={"connect": "1ms", "send": "1ms", "read": "1ms"}
    ),
    "portable: no timeouts": portable(timeouts={"connect": "0h", "send": "0m", "read": "0ms"}),
    "portable: longest compressed types": portable(
        compression={
            "mode": "Enabled",
            "types": [f"{'-' * 22}{letter}/{'.+' * 11}" for letter in "abcdefghijklmnopqrstuvwxyz"],
            "minLength": 1 << 30,
        }
    ),
    "portable: most retries": portable(
        retries={"attempts": 8, "codes": [*range(400, 408), *range(592, 600)], "backoff": "1m"}
    ),
    "portable: retries after a closed connection": portable(
        retries={"attempts": 1, "codes": [499], "backoff": "1ms"}
    ),
    "portable: long pause": portable(retries={"attempts": 1, "backoff": "60001ms"}),
    "portable: no retries": portable(retries={"attempts": 0, "codes": [500]}),
    "portable: highest rate": portable_rate(requests=1_000_000, burst=1_000_000),
    "portable: lowest rate": portable_rate(requests=1, per="Minute"),
    "portable: rate of a header": portable_rate(key={"type": "Header", "name": "-" * 128}),
    "portable: rate of a long parameter": portable_rate(
        key={"type": "QueryParameter", "name": "A_9" * 42}
    ),
    "portable: most rules": portable(
        rateLimit={"local": {"rules": [{"requests": 1, "per": "Second"}] * 16}}
    ),
    "portable: hash of a header": hashed("Header", "X-" + "a" * 126),
    "portable: hash of a host": hashed("Header", "Host"),
    "portable: hash of a cookie": hashed("Cookie", "_" * 128),
    "portable: hash of a parameter": hashed("QueryParameter", "9" * 128),
    "portable: endpoint connections": portable(
        backend={
            "keepAlive": {
                "maxIdleConnections": 2**31 - 1,
                "maxRequests": 2**31 - 1,
                "maxLifetime": "9999h",
                "idleTimeout": "9999h",
            }
        }
    ),
    "portable: most failures": portable(
        backend={"healthChecks": {"passive": {"maxFailures": 1000, "ejectionTime": "1h"}}}
    ),
    "portable: shortest ejection": portable(
        backend={"healthChecks": {"passive": {"maxFailures": 1, "ejectionTime": "1s"}}}
    ),
    "portable: no ejection": portable(
        backend={"healthChecks": {"passive": {"maxFailures": 1, "ejectionTime": "0s"}}}
    ),
    "portable: odd path of checks": portable(
        backend={"healthChecks": {"active": {"path": "/" + "$\"'\\{};%" * 31}}}
    ),
    "portable: most checks": portable(
        backend={
            "healthChecks": {
                "active": {
                    "interval": "1h",
                    "timeout": "10s",
                    "maxFailures": 100,
                    "minSuccesses": 100,
                }
            }
        }
    ),
    "portable: frequent checks": portable(
        backend={"healthChecks": {"active": {"interval": "1ms"}}}
    ),
    "portable: highest limits": portable(
        backend={
            "circuitBreaker": {
                "maxConnections": 2**31 - 1,
                "maxPendingRequests": 2**31 - 1,
                "maxParallelRequests": 2**31 - 1,
                "maxConnectionsPerEndpoint": 2**31 - 1,
            }
        }
    ),
    "portable: lowest limits": portable(
        backend={
            "circuitBreaker": {
                "maxConnections": 1,
                "maxPendingRequests": 1,
                "maxParallelRequests": 1,
                "maxConnectionsPerEndpoint": 1,
            }
        }
    ),
    "portable: shortest endpoint connections": portable(
        backend={
            "keepAlive": {
                "maxIdleConnections": 0,
                "maxRequests": 1,
                "maxLifetime": "1ms",
                "idleTimeout": "1ms",
            }
        }
    ),
    "security: realm of dollar signs": secured(
        basicAuth={"secretRef": {"name": "r"}, "realm": "$" * 256}
    ),
    "security: realm of quotes": secured(
        basicAuth={"secretRef": {"name": "r"}, "realm": "'\"\\{};" * 42}
    ),
    "security: longest addresses": secured(
        clientAddresses={"allow": ["::/0"] * 64, "deny": ["2001:db8::1"] * 64}
    ),
    "security: all addresses": secured(clientAddresses={"allow": ["0.0.0.0/0"], "deny": ["::/0"]}),
    "security: mapped address": secured(clientAddresses={"deny": ["::ffff:10.0.0.1"]}),
    "security: content policy of dollar signs": secured(
        securityHeaders={"contentSecurityPolicy": "$" * 2048}
    ),
    "security: content policy of quotes": secured(
        securityHeaders={"contentSecurityPolicy": "'\"\\{};" * 292}
    ),
    "security: longest age": secured(
        securityHeaders={"strictTransportSecurity": {"maxAgeSeconds": 2**31 - 1}}
    ),
    "security: longest names of keys": [
        *secured(
            apiKeys={
                "secretRefs": [{"name": "r"}],
                "extractFrom": [
                    {"headers": ["X" * 46], "params": ["~" * 64], "cookies": ["." * 64, "-"]}
                ],
                "clientHeader": "C" * 46,
            }
        )[:-1],
        {"kind": "Secret", "data": {"_" * 253: base64.b64encode(b"+" * 128).decode()}},
    ],
    "security: login of dollar signs and quotes": [
        *secured(
            oidc={
                "issuer": "https://i.example",
                "clientID": "'\"\\{};$" * 100,
                "clientSecretRef": {"name": "r"},
                "redirectURI": "/" + "$" * 1023,
                "extraAuthArgs": {"'\"\\{};$": "'\"\\{};$" * 100},
                "session": {"cookieName": "C" * 64},
                "logout": {"uri": "/" + "'" * 1023, "postLogoutURI": "/" + "%" * 1023},
                "requiredClaims": [{"name": "$" * 253, "values": ['"' * 256], "header": "X" * 46}],
            }
        )[:-1],
        {"kind": "Secret", "data": {"client-secret": base64.b64encode(b"$\"';{}").decode()}},
    ],
    "rate: key of quotes": limit(key='"' * 2100),
    "rate: key of many quotes": limit(key='"' * 4000),
    "rate: key of quotes below the limit": limit(key='"' * 1990),
    "rate: long key": limit(key="a" * 4090),
    "rate: very long key": limit(key="a" * 9000),
    "rate: key of variables": limit(key="$http_a" * 500),
    "rate: key of many variables": limit(key="$binary_remote_addr" * 400),
    "rate: key of a long variable": limit(key="$http_" + "a" * 3000),
    "rate: key of a long argument": limit(key="$arg_" + "a" * 3000),
    "rate: key of a long cookie": limit(key="$cookie_" + "a" * 3000),
    "rate: key of a very long variable": limit(key="$http_" + "a" * 17_000),
    "rate: key of an unknown header": limit(key="$http_" + "_" * 10),
    "rate: long name": [*limit(key="a")[:-1], limit(key="a")[-1] | {"name": "n" * 253}],
    "rate: key of a header": limit(key="$http_a_b"),
    "rate: key of an argument": limit(key="$arg_"),
    "rate: key of a bare header": limit(key="$http_"),
    "rate: key of a bare cookie": limit(key="$cookie_"),
    "rate: key in braces": limit(key="${http_a}b"),
    "rate: key with upper case": limit(key="$http_AB$arg_X$cookie_Y"),
    "rate: key of TLS": limit(key="$ssl_client_s_dn$ssl_session_id"),
    "rate: key with control": limit(key="a\x01"),
    "rate: key with line feed": limit(key="a\nb"),
    "rate: key with percent": limit(key="%REQ(a)%"),
    "rate: key outside of ASCII": limit(key="é"),
    "rate: key of four bytes": limit(key="\U0001f600" * 1100),
    "rate: unknown variable": limit(key="$foo"),
    "rate: large": limit(rate="999999999r/s"),
    "rate: above one million": limit(rate="5000000r/s"),
    "rate: per minute": limit(rate="999999999r/m"),
    "rate: slow": limit(rate="1r/m"),
    "rate: zone": limit(zoneSize="9999g"),
    "rate: zone of bytes": limit(zoneSize="9999"),
    "rate: zone of 32k": limit(zoneSize="32k"),
    "rate: zone of megabytes": limit(zoneSize="9999m"),
    "rate: burst": limit(burst=2**31 - 1),
    "rate: burst of a million": limit(burst=1_000_000, delay=1_000_000),
    "rate: delay above burst": limit(burst=1, delay=1000),
    "rate: code 599": policy(
        "RateLimitPolicy",
        {"rateLimit": {"rejectCode": 599, "local": {"rules": [{"key": "a", "rate": "1r/s"}]}}},
    ),
    "rate: code 418": policy(
        "RateLimitPolicy",
        {"rateLimit": {"rejectCode": 418, "local": {"rules": [{"key": "a", "rate": "1r/s"}]}}},
    ),
    "rate: same rule twice": policy(
        "RateLimitPolicy", {"rateLimit": {"local": {"rules": [{"key": "a", "rate": "1r/s"}] * 2}}}
    ),
    "client: body size": client(body={"maxSize": "9999g"}),
    "client: no body": client(body={"maxSize": "0"}),
    "client: odd body": client(body={"maxSize": "1"}),
    "client: body buffer": client(body={"bufferSize": "9999g"}),
    "client: no body buffer": client(body={"bufferSize": "0"}),
    "client: body buffer of one byte": client(body={"bufferSize": "1"}),
    "client: body timeout": client(body={"timeout": "9999h"}),
    "client: no body timeout": client(body={"timeout": "0s"}),
    "client: body timeout in milliseconds": client(body={"timeout": "1ms"}),
    "client: requests": client(keepAlive={"requests": 2**31 - 1}),
    "client: no requests": client(keepAlive={"requests": 0}),
    "client: keep-alive time": client(keepAlive={"time": "9999h"}),
    "client: no keep-alive time": client(keepAlive={"time": "0ms"}),
    "client: keep-alive timeout": client(
        keepAlive={"timeout": {"server": "9999h", "header": "9999h"}}
    ),
    "client: keep-alive timeout of milliseconds": client(
        keepAlive={"timeout": {"server": "1ms", "header": "1ms"}}
    ),
    "client: no keep-alive timeout": client(
        keepAlive={"timeout": {"server": "0s", "header": "0s"}}
    ),
    "client: least keep-alive": client(keepAlive={"minTimeout": "9999h"}),
    "proxy: buffer size": proxy(buffering={"bufferSize": "9999g"}),
    "proxy: buffer size of bytes": proxy(buffering={"bufferSize": "1"}),
    "proxy: no buffer size": proxy(buffering={"bufferSize": "0"}),
    "proxy: buffer size of megabytes": proxy(buffering={"bufferSize": "1m"}),
    "proxy: buffers": proxy(buffering={"buffers": {"number": 2, "size": "1"}}),
    "proxy: many large buffers": proxy(buffering={"buffers": {"number": 256, "size": "9999g"}}),
    "proxy: no buffers": proxy(buffering={"buffers": {"number": 2, "size": "0"}}),
    "proxy: busy buffers": proxy(buffering={"busyBuffersSize": "9999g"}),
    "proxy: small busy buffers": proxy(buffering={"busyBuffersSize": "1"}),
    "proxy: busy buffers of megabytes": proxy(buffering={"busyBuffersSize": "1m"}),
    "proxy: small buffers and large head": proxy(
        buffering={"bufferSize": "1m", "buffers": {"number": 2, "size": "1k"}}
    ),
    "proxy: not buffered": proxy(buffering={"disable": True, "bufferSize": "1"}),
    "proxy: timeouts": proxy(timeout={"connect": "9999h", "send": "9999h", "read": "9999h"}),
    "proxy: no timeouts": proxy(timeout={"connect": "0", "send": "0", "read": "0"}),
    "proxy: timeouts of milliseconds": proxy(
        timeout={"connect": "1ms", "send": "1ms", "read": "1ms"}
    ),
    "upstream: zone": upstream(zoneSize="9999g"),
    "upstream: small zone": upstream(zoneSize="1"),
    "upstream: zone of kilobytes": upstream(zoneSize="32k"),
    "upstream: keep-alive": upstream(
        keepAlive={
            "connections": 2**31 - 1,
            "requests": 2**31 - 1,
            "time": "9999h",
            "timeout": "9999h",
        }
    ),
    "upstream: no keep-alive": upstream(
        keepAlive={"connections": 0, "requests": 0, "time": "0s", "timeout": "0s"}
    ),
    "upstream: many connections": upstream(keepAlive={"connections": 1_000_000}),
    "upstream: hash": upstream(loadBalancingMethod="hash", hashMethodKey="$http_" + "a" * 3000),
    "upstream: hash of a host": upstream(
        loadBalancingMethod="hash consistent", hashMethodKey="$host"
    ),
    "upstream: least time": upstream(loadBalancingMethod="least_time header"),
    "upstream: random": upstream(loadBalancingMethod="random two least_conn"),
    "observability: ratio": traced(strategy="ratio", ratio=0),
    "observability: attributes": traced(
        strategy="ratio",
        spanAttributes=[{"key": f"{n}" + "a" * 250, "value": "b" * 255} for n in range(60)],
    ),
    "observability: dollar signs": traced(
        strategy="ratio", spanAttributes=[{"key": "a$b%", "value": "$host%REQ(a)%"}]
    ),
    "observability: span name": traced(strategy="parent", spanName="a" * 255),
}
