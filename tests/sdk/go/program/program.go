// Package program runs named operations against the bus and prints a line of JSON for each.
//
// Where the bus is comes from the environment: BUSWAY_CONNECTION_STRING, BUSWAY_CA_FILE and BUSWAY_MODE, which is
// `loopback` (the emulator's switch is in the string), `tls` or `websocket`. Of the last two the string names no port, as
// when the usual ones are served; BUSWAY_ADDRESS is where it listens in fact. Entities are named with BUSWAY_PREFIX.
package program

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"time"

	"github.com/coder/websocket"
)

const patience = 40 * time.Second

var (
	ConnectionString = os.Getenv("BUSWAY_CONNECTION_STRING")
	Mode             = os.Getenv("BUSWAY_MODE")
	Address          = os.Getenv("BUSWAY_ADDRESS")
	// Given is an entity that is there, and the only one: so it is while a conversation is recorded.
	Given = os.Getenv("BUSWAY_ENTITY")
)

// Trial is one operation under way.
type Trial struct {
	context.Context
	name string
}

// Entity is a name that no other operation uses.
func (trial *Trial) Entity() string {
	if Given != "" {
		return Given
	}
	return os.Getenv("BUSWAY_PREFIX") + trial.name
}

type operation struct {
	name string
	do   func(*Trial)
}

var operations []operation

// Add makes an operation known; they are tried in the order in which they were added.
func Add(name string, do func(*Trial)) { operations = append(operations, operation{name, do}) }

type answer struct {
	Operation string  `json:"operation"`
	Passed    bool    `json:"passed"`
	Found     string  `json:"found"`
	Seconds   float64 `json:"seconds"`
}

// Main tries the operations that are named on the command line, or all.
func Main() {
	out := json.NewEncoder(os.Stdout)
	for _, each := range operations {
		if len(os.Args) > 1 && !contains(os.Args[1:], each.name) {
			continue
		}
		began := time.Now()
		found := attempt(each)
		_ = out.Encode(answer{each.name, found == "", found, time.Since(began).Seconds()})
	}
}

func attempt(each operation) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	done := make(chan string, 1)
	go func() {
		defer func() {
			if problem := recover(); problem != nil {
				if _, isOurs := problem.(failure); !isOurs {
					fmt.Fprintf(os.Stderr, "%s: %v\n%s", each.name, problem, debug.Stack())
				}
				done <- fmt.Sprint(problem)
				return
			}
			done <- ""
		}()
		each.do(&Trial{ctx, each.name})
	}()
	select {
	case found := <-done:
		return found
	case <-time.After(patience + 5*time.Second):
		return "it did not end"
	}
}

type failure string

func (problem failure) String() string { return string(problem) }

// Fail ends the operation.
func Fail(format string, values ...any) { panic(failure(fmt.Sprintf(format, values...))) }

// Check ends the operation if there is an error.
func Check(err error) {
	if err != nil {
		Fail("%v", err)
	}
}

// Get is a value, or the end of the operation.
func Get[T any](value T, err error) T {
	Check(err)
	return value
}

// Equal ends the operation if what was found is not what was wanted.
func Equal(what string, found, wanted any) {
	if !reflect.DeepEqual(found, wanted) {
		Fail("%s is %#v, not %#v", what, found, wanted)
	}
}

// Holds ends the operation if it is not so.
func Holds(what string, itIs bool) {
	if !itIs {
		Fail("not so: %s", what)
	}
}

// Has ends the operation if the error does not say so.
func Has(err error, words string) {
	if err == nil || !strings.Contains(err.Error(), words) {
		Fail("the error is %v, without %q", err, words)
	}
}

func contains(names []string, name string) bool {
	for _, each := range names {
		if each == name {
			return true
		}
	}
	return false
}

// Trust is what a client needs to believe the server's certificate.
func Trust() *tls.Config {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(Get(os.ReadFile(os.Getenv("BUSWAY_CA_FILE")))) {
		Fail("no certificate in BUSWAY_CA_FILE")
	}
	return &tls.Config{RootCAs: pool}
}

// HTTP is a client that trusts the server, and finds it.
func HTTP() *http.Client {
	transport := &http.Transport{TLSClientConfig: Trust()}
	if Address != "" {
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, Address)
		}
	}
	return &http.Client{Transport: transport}
}

// WebSocket opens one as the SDK's own example does; the server's close of it is no error.
func WebSocket(ctx context.Context, address string) (net.Conn, error) {
	options := &websocket.DialOptions{Subprotocols: []string{"amqp"}, HTTPClient: HTTP()}
	opened, _, err := websocket.Dial(ctx, address, options)
	if err != nil {
		return nil, err
	}
	return websocket.NetConn(context.WithoutCancel(ctx), opened, websocket.MessageBinary), nil
}

// Value is what a connection string has for a name.
func Value(name string) string {
	for part := range strings.SplitSeq(ConnectionString, ";") {
		if key, value, _ := strings.Cut(part, "="); key == name {
			return value
		}
	}
	return ""
}
