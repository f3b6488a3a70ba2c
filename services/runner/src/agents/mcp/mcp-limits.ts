/** One message of an MCP server; more would take a runner down. */
export const MESSAGE_BYTES_MAX = 16 << 20

/** What of a tool's result goes to the model, and into the conversation. */
export const RESULT_CHARS_MAX = 200_000

/** Tools of one server; more are a mistake of the server. */
export const TOOLS_MAX = 1000
