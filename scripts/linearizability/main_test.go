package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
)

func judge(t *testing.T, lines ...string) bool {
	t.Helper()
	file := filepath.Join(t.TempDir(), "history.jsonl")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	history, err := read(file)
	if err != nil {
		t.Fatal(err)
	}
	return porcupine.CheckOperations(model(), history)
}

const (
	putA      = `{"name":"/n","kind":"put","value":"a","began":0,"ended":10,"is_made":true}`
	putB      = `{"name":"/n","kind":"put","value":"b","began":20,"ended":30,"is_made":true}`
	seesA     = `{"name":"/n","kind":"get","began":40,"ended":50,"seen":"a"}`
	seesB     = `{"name":"/n","kind":"get","began":40,"ended":50,"seen":"b"}`
	seesNone  = `{"name":"/n","kind":"get","began":40,"ended":50,"seen":null}`
	madeTwice = `{"name":"/n","kind":"create","value":"c","began":20,"ended":30,"is_made":true}`
	deletes   = `{"name":"/n","kind":"delete","began":32,"ended":35,"is_made":true}`
	found     = `{"name":"/n","kind":"create","value":"c","began":32,"ended":35,"is_made":false}`
	unknownB  = `{"name":"/n","kind":"put","value":"b","began":20,"ended":30,"is_unknown":true}`
	foreign   = `{"name":"/m","kind":"get","began":40,"ended":50,"seen":null}`
)

func TestHistoriesOfOneNamenode(t *testing.T) {
	for name, lines := range map[string][]string{
		"last value":                {putA, putB, seesB},
		"deleted":                   {putA, deletes, seesNone},
		"other name":                {putA, foreign},
		"unanswered change made":    {putA, unknownB, seesB},
		"unanswered change is open": {putA, unknownB, seesA},
		"exists":                    {putA, found, seesA},
	} {
		if !judge(t, lines...) {
			t.Errorf("%s: a history that one namenode gives is refused", name)
		}
	}
}

func TestHistoriesThatNoNamenodeGives(t *testing.T) {
	for name, lines := range map[string][]string{
		"stale read":                 {putA, putB, seesA},
		"lost change":                {putA, seesNone},
		"created where something is": {putA, madeTwice},
		"deleted value comes back":   {putA, deletes, seesA},
		"nothing is there":           {found},
	} {
		if judge(t, lines...) {
			t.Errorf("%s: it was not found", name)
		}
	}
}
