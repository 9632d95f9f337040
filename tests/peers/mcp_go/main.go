// mcp-go serving one echo tool over Streamable HTTP, stateless, answering in JSON.
// Prints "Listening on URL" like our own server, so that the bench can start either.
// It is measured on one core: the runtime sees that it may use no other, and sets GOMAXPROCS to one.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

func echo(_ context.Context, call mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	text, err := call.RequireString("text")
	if err != nil {
		return mcp.NewToolResultError(err.Error()), nil
	}
	return mcp.NewToolResultText(text), nil
}

func main() {
	tools := server.NewMCPServer("echo", "1.0.0", server.WithToolCapabilities(false))
	tools.AddTool(
		mcp.NewTool("echo", mcp.WithDescription("Say the same again."), mcp.WithString("text", mcp.Required())),
		echo,
	)

	routes := http.NewServeMux()
	routes.Handle("/mcp", server.NewStreamableHTTPServer(
		tools, server.WithStateLess(true), server.WithDisableStreaming(true),
	))

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("Listening on http://%s\n", listener.Addr())
	log.Fatal(http.Serve(listener, routes))
}
