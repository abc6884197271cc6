// Judges histories of calls on names that callers share: whether one namenode that never fails
// could have answered so. A line of a history is one call, as
// crates/cli/tests/group_chaos/history.rs writes it. Exit code 0: all histories are linearizable.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// Longest search for one history. A history of this size takes seconds.
const within = 10 * time.Minute

// One call.
type call struct {
	Caller    int     `json:"caller"`
	Name      string  `json:"name"`
	Kind      string  `json:"kind"`
	Value     string  `json:"value"`
	Began     int64   `json:"began"`
	Ended     int64   `json:"ended"`
	Seen      *string `json:"seen"`
	IsMade    bool    `json:"is_made"`
	IsUnknown bool    `json:"is_unknown"`
}

// What a name holds: no value is the empty text, which nobody writes.
func step(state, input, output any) (bool, any) {
	value, asked := state.(string), input.(call)
	if asked.IsUnknown {
		// Made at its place, or never: then its place is after all others.
		switch asked.Kind {
		case "put":
			return true, asked.Value
		case "create":
			if value == "" {
				return true, asked.Value
			}
			return true, value
		case "delete":
			return true, ""
		default:
			return true, value
		}
	}
	switch asked.Kind {
	case "get":
		seen := ""
		if asked.Seen != nil {
			seen = *asked.Seen
		}
		return seen == value, value
	case "put":
		return asked.IsMade, asked.Value
	case "create":
		if asked.IsMade {
			return value == "", asked.Value
		}
		return value != "", value
	case "delete":
		return asked.IsMade == (value != ""), ""
	}
	return false, value
}

func byName(history []porcupine.Operation) [][]porcupine.Operation {
	parts := map[string][]porcupine.Operation{}
	for _, one := range history {
		name := one.Input.(call).Name
		parts[name] = append(parts[name], one)
	}
	all := make([][]porcupine.Operation, 0, len(parts))
	for _, part := range parts {
		all = append(all, part)
	}
	return all
}

func read(path string) ([]porcupine.Operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var history []porcupine.Operation
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var one call
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, err
		}
		ended := one.Ended
		if one.IsUnknown {
			ended = math.MaxInt64
		}
		operation := porcupine.Operation{ClientId: len(history), Input: one, Call: one.Began, Return: ended}
		history = append(history, operation)
	}
	return history, lines.Err()
}

func model() porcupine.Model {
	return porcupine.Model{
		Partition: byName,
		Init:      func() any { return "" },
		Step:      step,
		DescribeOperation: func(input, _ any) string {
			text, _ := json.Marshal(input)
			return string(text)
		},
	}
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: go run . HISTORY...")
		os.Exit(2)
	}
	code := 0
	for _, path := range os.Args[1:] {
		history, err := read(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, path+":", err)
			os.Exit(2)
		}
		began := time.Now()
		result, info := porcupine.CheckOperationsVerbose(model(), history, within)
		fmt.Printf("%s: %d calls: %s in %.1f s\n", path, len(history), result, time.Since(began).Seconds())
		if result != porcupine.Ok {
			code = 1
			_ = porcupine.VisualizePath(model(), info, path+".html")
			fmt.Printf("%s.html shows where\n", path)
		}
	}
	os.Exit(code)
}
