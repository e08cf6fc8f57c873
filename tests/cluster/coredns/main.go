// CoreDNS with the plugins that a cluster's DNS needs, so that it builds in a fraction of the time.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"

	"github.com/coredns/coredns/coremain"
)

func main() {
	dnsserver.Directives = []string{
		"reload", "health", "ready", "errors", "cache", "hosts", "kubernetes",
	}
	coremain.Run()
}
