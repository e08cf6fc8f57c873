// Keeps the suite's backend among the requirements of this module.

//go:build tools

package conformance

import _ "sigs.k8s.io/gateway-api-conformance-images/echo-basic"
