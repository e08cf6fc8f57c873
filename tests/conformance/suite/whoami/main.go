// A name server that answers every question with who asked, as CoreDNS's plug-in "whoami" does. It
// stands for the CoreDNS image in the suite's UDPRoute test.
package main

import (
	"log"
	"net"

	"github.com/miekg/dns"
)

func main() {
	dns.HandleFunc(".", answer)
	server := &dns.Server{Addr: ":53", Net: "udp"}
	log.Print("answering on :53")
	log.Fatal(server.ListenAndServe())
}

func answer(writer dns.ResponseWriter, question *dns.Msg) {
	host, _, _ := net.SplitHostPort(writer.RemoteAddr().String())
	reply := new(dns.Msg)
	reply.SetReply(question)
	reply.Authoritative = true
	header := dns.RR_Header{Name: question.Question[0].Name, Class: dns.ClassINET, Rrtype: dns.TypeA}
	reply.Extra = append(reply.Extra, &dns.A{Hdr: header, A: net.ParseIP(host)})
	if err := writer.WriteMsg(reply); err != nil {
		log.Print(err)
	}
}
