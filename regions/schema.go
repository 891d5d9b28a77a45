package regions

import (
	_ "embed"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed schema.sql
var schema string

// Schema returns the SQL that makes the tables. It runs in psql as it is, and may
// be run again. The schema of the tables is taken as it is; "" is what the search
// path names.
func Schema(namespace string) string { return within(schema, namespace) }

// tables are the names that SQL may hold, and what stands for them.
func tables() map[string]string {
	return map[string]string{
		"@region":        "rate_limit_region",
		"@safe_function": "rate_limit_region_safe",
		"@books":         "rate_limit_region_books",
		"@sound":         "rate_limit_region_sound",
		"@share":         "rate_limit_region_share",
		"@gateway":       "rate_limit_region_gateway",
		"@demand":        "rate_limit_region_demand",
	}
}

// within puts the names of the tables into SQL.
func within(sql, namespace string) string {
	names := tables()
	pairs := make([]string, 0, 2*len(names))
	for word, name := range names {
		identifier := pgx.Identifier{name}
		if namespace != "" {
			identifier = pgx.Identifier{namespace, name}
		}
		pairs = append(pairs, word, identifier.Sanitize())
	}
	return strings.NewReplacer(pairs...).Replace(sql)
}

// SchemaOf returns the schema that the name of the table of rules begins with, where
// the tables of shares are, too. It is blank where the name has none.
func SchemaOf(table string) string {
	if schema, _, found := strings.Cut(table, "."); found {
		return schema
	}
	return ""
}
