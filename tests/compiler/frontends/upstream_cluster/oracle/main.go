// Reads requests ([[method, target], …] as JSON) from stdin and says what k8s.io/apiserver reads in
// each: how tests/upstream_clusters/request_infos.json is made (see make_request_infos.py).
package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/filters"
)

type answer struct {
	Method      string `json:"method"`
	Target      string `json:"target"`
	Error       bool   `json:"error,omitempty"`
	Verb        string `json:"verb"`
	Path        string `json:"path"`
	IsResource  bool   `json:"is_resource,omitempty"`
	Group       string `json:"group,omitempty"`
	Version     string `json:"version,omitempty"`
	Resource    string `json:"resource,omitempty"`
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	LongRunning bool   `json:"long_running,omitempty"`
}

func main() {
	var asked [][2]string
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		panic(err)
	}
	factory := request.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	}
	long := filters.BasicLongRunningRequestCheck(
		sets.NewString("watch", "proxy"),
		sets.NewString("attach", "exec", "proxy", "log", "portforward"),
	)
	answers := []answer{}
	for _, each := range asked {
		text := each[0] + " " + each[1] + " HTTP/1.1\r\nHost: x\r\n\r\n"
		read, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			answers = append(answers, answer{Method: each[0], Target: each[1], Error: true})
			continue
		}
		info, err := factory.NewRequestInfo(read)
		if err != nil {
			answers = append(answers, answer{Method: each[0], Target: each[1], Error: true})
			continue
		}
		answers = append(answers, answer{
			each[0], each[1], false, info.Verb, info.Path, info.IsResourceRequest, info.APIGroup,
			info.APIVersion, info.Resource, info.Subresource, info.Namespace, info.Name,
			long(read, info),
		})
	}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	if err := out.Encode(answers); err != nil {
		panic(err)
	}
}
