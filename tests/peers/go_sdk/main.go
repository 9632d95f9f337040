// The official Go SDK serving one echo tool over Streamable HTTP, stateless, answering in JSON.
// Prints "Listening on URL" like our own server, so that the bench can start either.
// It is measured on one core: the runtime sees that it may use no other, and sets GOMAXPROCS to one.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type said struct {
	Text string `json:"text"`
}

func echo(_ context.Context, _ *mcp.CallToolRequest, given said) (*mcp.CallToolResult, any, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: given.Text}}}, nil, nil
}

func main() {
	server := mcp.NewServer(&mcp.Implementation{Name: "echo", Version: "1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "echo", Description: "Say the same again."}, echo)

	routes := http.NewServeMux()
	routes.Handle("/mcp", mcp.NewStreamableHTTPHandler(
		func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true},
	))

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("Listening on http://%s\n", listener.Addr())
	log.Fatal(http.Serve(listener, routes))
}
