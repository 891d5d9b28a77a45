package redisbucket

import (
	"errors"
	"strings"
)

// redirect is the reply that another server decides: it serves the keys' slot, or
// (ask) will do so soon and has these keys already. Nothing was executed.
type redirect struct {
	host  string
	ask   bool
	reply error
}

// Error returns what Redis replied.
func (r *redirect) Error() string { return r.reply.Error() }

// Unwrap returns the reply.
func (r *redirect) Unwrap() error { return r.reply }

// redirectIn returns the redirect that err is, nil where it is none.
func redirectIn(err error) *redirect {
	var r *redirect
	if err == nil || !errors.As(err, &r) {
		return nil
	}
	return r
}

// redirected returns what a call on the node ended with as a redirect, where it is
// one. The only server there is cannot send anyone elsewhere.
func (n *node) redirected(err error) error {
	if n.client.sole != nil {
		return err
	}
	return followed(err, n.address.host)
}

// followed returns a reply of the server at asked as a redirect, where it is one:
// "MOVED 3999 10.0.0.7:6379" or "ASK 3999 10.0.0.7:6379". It is not followed to a
// server that has no name: only CLUSTER SLOTS tells the address then.
func followed(err error, asked string) error {
	class := replyClass(err)
	if class != "MOVED" && class != "ASK" {
		return err
	}
	fields := strings.Fields(err.Error())
	if len(fields) < 3 {
		return err
	}
	at := strings.LastIndexByte(fields[len(fields)-1], ':')
	if at < 0 {
		return err
	}
	// An IPv6 address comes without brackets.
	host, port := strings.Trim(fields[len(fields)-1][:at], "[]"), fields[len(fields)-1][at+1:]
	if !isPort(port) || host == unnamed {
		return err
	}
	return &redirect{host: hostNear(asked, host, port), ask: class == "ASK", reply: err}
}
