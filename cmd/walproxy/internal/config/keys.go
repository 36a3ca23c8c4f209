package config

import (
	"fmt"
	"reflect"
)

const keyTag = "yaml"

func join(section, name string) string {
	if section == "" {
		return name
	}
	return section + "." + name
}

// fieldByKey returns the field of the struct v whose key is name; the zero Value if there is none.
func fieldByKey(v reflect.Value, name string) reflect.Value {
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get(keyTag) == name {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

// suggest names the key of the struct t that name may be a slip of.
func suggest(t reflect.Type, name string) string {
	best, distance := "", 3
	for i := range t.NumField() {
		key := t.Field(i).Tag.Get(keyTag)
		if d := editDistance(key, name); d < distance && d < len(key)-1 {
			best, distance = key, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; do you mean %s?", best)
}

// editDistance counts the insertions, deletions and replacements of bytes between a and b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal, row[j+1] = row[j+1], min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
