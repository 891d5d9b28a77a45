package rulecache

import (
	_ "embed"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

var (
	//go:embed schema.sql
	schema string
	//go:embed schema_tenants.sql
	tenantsSchema string
	//go:embed schema_trigger.sql
	triggerSchema string
)

// Schema returns the SQL that makes the table of rules, with its optional
// columns, and the trigger that notifies the channel of every change. It runs
// in psql as it is, and again: a table that is there stays as it is. The names are those of Options and Settings, taken as they
// are; "" is the default of each.
func Schema(table, channel string) string {
	return namedSchema(schema, Options{Table: table}.table(), channel)
}

// TenantsSchema returns the SQL that makes the table of tenants, which say what plan
// each has and who is blocked, with the same trigger.
func TenantsSchema(table, channel string) string { return namedSchema(tenantsSchema, table, channel) }

func namedSchema(text, table, channel string) string {
	parts := strings.Split(table, ".")
	function := append([]string(nil), parts...)
	last := len(parts) - 1
	function[last] = clipBytes(function[last], maxIdentifierLength-len(functionSuffix)) + functionSuffix
	if channel == "" {
		channel = DefaultChannel
	}
	return strings.NewReplacer(
		"@table", pgx.Identifier(parts).Sanitize(),
		"@function", pgx.Identifier(function).Sanitize(),
		"@channel", quoteLiteral(channel),
	).Replace(text + triggerSchema)
}

// functionSuffix makes the name of the trigger's function of that of the table.
const functionSuffix = "_notify"

// clipBytes cuts text to at most length bytes, at the end of a character.
func clipBytes(text string, length int) string {
	if len(text) <= length {
		return text
	}
	for length > 0 && !utf8.RuneStart(text[length]) {
		length--
	}
	return text[:length]
}

// quoteLiteral returns text as a literal of SQL. One with a backslash is
// written so that it does not depend on standard_conforming_strings.
func quoteLiteral(text string) string {
	quoted := "'" + strings.ReplaceAll(strings.ReplaceAll(text, `\`, `\\`), "'", "''") + "'"
	if strings.Contains(text, `\`) {
		return "E" + quoted
	}
	return quoted
}

// quoteShell returns text as one word of a shell.
func quoteShell(text string) string {
	plain := func(r rune) bool { return r > ' ' && r < 0x7f && !strings.ContainsRune("'\"`$&;|<>()\\*?[]#~!{}", r) }
	if strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
