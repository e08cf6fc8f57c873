// Command kube_streams is a kube-apiserver's way to the streams of one Pod: exec and port-forward,
// over SPDY/3.1 and over WebSockets. The handlers that kubectl meets are k8s.io/apiserver's own;
// behind them stands a node, which speaks SPDY alone, as nodes do.
//
// A command with standard input gives back what it reads, in upper case; `fail` as its name ends with 7.
// Any other command is run as a process of this machine. A port that is forwarded to gives back each
// line with the port's number before it.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	osexec "os/exec"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
	"k8s.io/apimachinery/pkg/util/httpstream/wsstream"
	"k8s.io/apimachinery/pkg/util/proxy"
	apiproxy "k8s.io/apiserver/pkg/util/proxy"
)

const pod = "/api/v1/namespaces/team/pods/p"

type streams struct {
	sync.Mutex
	byType map[string]httpstream.Stream
	came   chan struct{}
}

func upgraded(w http.ResponseWriter, r *http.Request, protocol string, each httpstream.NewStreamHandler) httpstream.Connection {
	if _, err := httpstream.Handshake(r, w, []string{protocol}); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil
	}
	connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r, each)
	if connection != nil {
		connection.SetIdleTimeout(time.Minute)
	}
	return connection
}

// exec is a node's: streams error, stdin, stdout and stderr, the outcome as a Status at the end.
func exec(w http.ResponseWriter, r *http.Request) {
	found := &streams{byType: map[string]httpstream.Stream{}, came: make(chan struct{}, 8)}
	connection := upgraded(w, r, "v4.channel.k8s.io", func(s httpstream.Stream, replied <-chan struct{}) error {
		found.Lock()
		found.byType[s.Headers().Get("streamType")] = s
		found.Unlock()
		go func() { <-replied; found.came <- struct{}{} }()
		return nil
	})
	if connection == nil {
		return
	}
	defer connection.Close()
	query := r.URL.Query()
	expected := 1
	for _, name := range []string{"stdin", "stdout", "stderr"} {
		if query.Get(name) == "true" || query.Get(name) == "1" {
			expected++
		}
	}
	for range expected {
		select {
		case <-found.came:
		case <-time.After(10 * time.Second):
			return
		}
	}
	status := metav1.Status{Status: metav1.StatusSuccess}
	if query.Get("command") == "fail" {
		cause := metav1.StatusCause{Type: "ExitCode", Message: "7"}
		status = metav1.Status{
			Status: metav1.StatusFailure, Reason: "NonZeroExitCode",
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{cause}},
		}
	} else if in := found.byType["stdin"]; in != nil {
		shout(found.byType["stdout"], in)
	} else {
		status = run(query["command"], found.byType["stdout"], found.byType["stderr"])
	}
	said, _ := json.Marshal(status)
	_, _ = found.byType["error"].Write(said)
}

// run runs a command, and gives the Status that a node sends at its end.
func run(command []string, out, errors io.Writer) metav1.Status {
	process := osexec.Command(command[0], command[1:]...)
	process.Stdout, process.Stderr = out, errors
	err := process.Run()
	if err == nil {
		return metav1.Status{Status: metav1.StatusSuccess}
	}
	exited, ok := err.(*osexec.ExitError)
	if !ok {
		return metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Message: err.Error()}
	}
	cause := metav1.StatusCause{Type: "ExitCode", Message: fmt.Sprint(exited.ExitCode())}
	return metav1.Status{
		Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Message: err.Error(),
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{cause}},
	}
}

func shout(out io.Writer, in io.Reader) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := in.Read(buffer)
		if _, failed := out.Write(bytes.ToUpper(buffer[:n])); failed != nil || err != nil {
			return
		}
	}
}

// forward is a node's: pairs of streams, error and data, for each connection to a port.
func forward(w http.ResponseWriter, r *http.Request) {
	connection := upgraded(w, r, "portforward.k8s.io", func(s httpstream.Stream, replied <-chan struct{}) error {
		go func() {
			<-replied
			if s.Headers().Get("streamType") != "data" {
				_ = s.Close()
				return
			}
			defer s.Close()
			lines := bufio.NewReader(s)
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				_, _ = fmt.Fprintf(s, "%s: %s", s.Headers().Get("port"), line)
			}
		}()
		return nil
	})
	if connection != nil {
		<-connection.CloseChan()
	}
}

type responder struct{}

func (responder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusBadGateway)
}

func node() string {
	mux := http.NewServeMux()
	mux.HandleFunc("/exec", exec)
	mux.HandleFunc("/portForward", forward)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(http.Serve(listener, mux)) }()
	return listener.Addr().String()
}

// streamed gives the handlers that k8s.io/kubernetes' pods have for a subresource.
func streamed(address, path string, direct bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		location := &url.URL{Scheme: "http", Host: address, Path: path, RawQuery: r.URL.RawQuery}
		onward := proxy.NewUpgradeAwareHandler(location, http.DefaultTransport, false, true, responder{})
		var handler http.Handler
		if direct {
			query := r.URL.Query()
			translated := apiproxy.NewStreamTranslatorHandler(location, http.DefaultTransport, 0, apiproxy.Options{
				Stdin: query.Get("stdin") == "true", Stdout: query.Get("stdout") == "true",
				Stderr: query.Get("stderr") == "true", Tty: query.Get("tty") == "true",
			})
			handler = apiproxy.NewTranslatingHandler(onward, translated, wsstream.IsWebSocketRequestWithStreamCloseProtocol)
		} else {
			tunnel := apiproxy.NewTunnelingHandler(onward)
			handler = apiproxy.NewTranslatingHandler(onward, tunnel, wsstream.IsWebSocketRequestWithTunnelingProtocol)
		}
		log.Printf("%s %s as %q by %q", r.Method, r.URL.Path, r.Header.Get("Impersonate-User"), r.Header.Get("Upgrade"))
		handler.ServeHTTP(w, r)
	}
}

func said(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

func main() {
	cert := flag.String("cert", "", "certificate, PEM")
	key := flag.String("key", "", "its key")
	listen := flag.String("listen", "", "host:port")
	flag.Parse()
	address := node()
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("/api", func(w http.ResponseWriter, _ *http.Request) {
		said(w, map[string]any{"kind": "APIVersions", "versions": []string{"v1"}})
	})
	mux.HandleFunc("/apis", func(w http.ResponseWriter, _ *http.Request) {
		said(w, map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{}})
	})
	mux.HandleFunc("/api/v1", func(w http.ResponseWriter, _ *http.Request) {
		pods := map[string]any{
			"name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "verbs": []string{"get"},
		}
		said(w, map[string]any{"kind": "APIResourceList", "groupVersion": "v1", "resources": []any{pods}})
	})
	mux.HandleFunc(pod, func(w http.ResponseWriter, _ *http.Request) {
		ports := []any{map[string]any{"containerPort": 8080}}
		said(w, map[string]any{
			"apiVersion": "v1", "kind": "Pod",
			"metadata": map[string]any{"name": "p", "namespace": "team"},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i", "ports": ports}}},
			"status":   map[string]any{"phase": "Running"},
		})
	})
	mux.HandleFunc(pod+"/exec", streamed(address, "/exec", true))
	mux.HandleFunc(pod+"/portforward", streamed(address, "/portForward", false))
	log.Fatal(http.ListenAndServeTLS(*listen, *cert, *key, mux))
}
