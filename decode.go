package ratelimit

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

// UnmarshalJSON reads the handler's fields. An error names the path of what is
// wrong and says what is allowed there.
func (h *Handler) UnmarshalJSON(text []byte) error {
	type fields Handler // without this method
	return decode(text, (*fields)(h))
}

// UnmarshalJSON reads the app's fields. An error names the path of what is wrong
// and says what is allowed there.
func (a *App) UnmarshalJSON(text []byte) error {
	type fields App // without this method
	return decode(text, (*fields)(a))
}

// decode reads JSON into a struct as Caddy does, which is to refuse unknown
// fields, and says where it went wrong: encoding/json knows types, not paths.
func decode(text []byte, dst any) error {
	err := caddy.StrictUnmarshalJSON(text, dst)
	if err == nil {
		return nil
	}
	if fault := faultIn(text, reflect.TypeOf(dst).Elem(), ""); fault != nil {
		return fault
	}
	return err
}

// faultIn returns the first part of the JSON that does not fit the type, in the
// order of paths. It quotes nothing but the names of fields: a value may be a secret.
func faultIn(text json.RawMessage, kind reflect.Type, path string) error {
	if string(text) == "null" {
		return nil
	}
	switch {
	case kind.Kind() == reflect.Pointer:
		return faultIn(text, kind.Elem(), path)
	case reflect.PointerTo(kind).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return misfit(text, kind, path)
	case kind.Kind() == reflect.Struct:
		return faultInFields(text, kind, path)
	case kind.Kind() == reflect.Slice:
		return faultInList(text, kind, path)
	case kind.Kind() == reflect.Map:
		return faultInMap(text, kind, path)
	}
	return misfit(text, kind, path)
}

func faultInFields(text json.RawMessage, kind reflect.Type, path string) error {
	var values map[string]json.RawMessage
	if json.Unmarshal(text, &values) != nil {
		return misfit(text, kind, path)
	}
	types := map[string]reflect.Type{}
	for _, field := range reflect.VisibleFields(kind) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			types[name] = field.Type
		}
	}
	known := slices.Sorted(maps.Keys(types))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		at := slices.IndexFunc(known, func(other string) bool { return strings.EqualFold(name, other) })
		if at < 0 {
			return fmt.Errorf("%s: unknown field: %s", below(path, clipped(name)), allowedHere(name, known))
		}
		if err := faultIn(values[name], types[known[at]], below(path, name)); err != nil {
			return err
		}
	}
	return nil
}

func faultInList(text json.RawMessage, kind reflect.Type, path string) error {
	var values []json.RawMessage
	if json.Unmarshal(text, &values) != nil {
		return misfit(text, kind, path)
	}
	for i, value := range values {
		if err := faultIn(value, kind.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	return nil
}

func faultInMap(text json.RawMessage, kind reflect.Type, path string) error {
	var values map[string]json.RawMessage
	if json.Unmarshal(text, &values) != nil {
		return misfit(text, kind, path)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := faultIn(values[name], kind.Elem(), below(path, clipped(name))); err != nil {
			return err
		}
	}
	return nil
}

// misfit returns an error unless the JSON fits the type as a whole.
func misfit(text json.RawMessage, kind reflect.Type, path string) error {
	if json.Unmarshal(text, reflect.New(kind).Interface()) == nil {
		return nil
	}
	if path == "" {
		path = "the module"
	}
	return fmt.Errorf("%s: %s is no value for it: allowed is %s", path, kindOf(text), allowedFor(kind))
}

// kindOf says what a value is.
func kindOf(text json.RawMessage) string {
	switch text[0] {
	case '"':
		return "a text"
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 't', 'f':
		return string(text)
	default:
		return "the number " + clipped(string(text))
	}
}

// allowedFor says what a type takes.
func allowedFor(kind reflect.Type) string {
	switch kind {
	case reflect.TypeFor[caddy.Duration]():
		return `a text with a number and a unit, such as "5ms" or "30s", or a whole number of nanoseconds`
	case reflect.TypeFor[Prefetch]():
		return `a whole number or "auto"`
	}
	switch kind.Kind() {
	case reflect.String:
		return "a text in quotes"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list: [ … ]"
	default:
		return "an object: { … }"
	}
}

// below is the path of a field in what is at a path.
func below(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// clipped bounds what an error quotes of a name.
func clipped(name string) string {
	const most = 64
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}

// Interface guards
var (
	_ json.Unmarshaler = (*Handler)(nil)
	_ json.Unmarshaler = (*App)(nil)
)
