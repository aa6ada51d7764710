/* SPDX-License-Identifier: Apache-2.0 */
/* Tools that are a program of the sandbox's own: grep, git. What they say is its claim. */
#include "api/mcp/handlers.h"

/* ---- environments ---- */

/* By `cove env`; "": it isn't one. */
struct str mcp_path(const struct call *c, struct str path)
{
    const struct str top = sandbox_label(c->sandbox, STR("cove.repo"));
    if (!top.n || (path.n && (*path.p == '/' || *path.p == '~')))
        return path;
    char *whole = arena_alloc(http_arena(c->req), top.n + 1 + path.n);
    memcpy(whole, top.p, top.n);
    whole[top.n] = '/';
    memcpy(whole + top.n + 1, path.p, path.n);
    return str_n(whole, top.n + (path.n > 0) + path.n);
}

struct str mcp_user(const struct call *c, struct str user)
{
    return user.n ? user : sandbox_label(c->sandbox, STR("cove.user"));
}

/* ---- file_search: grep, inside ---- */

static void search_done(struct call *c, struct waited *w, const struct exec_exit *exit)
{
    struct str rest = buf_str(&w->out[0]), line, path, number;
    json_t *matches = json_array();
    bool is_cut = w->bytes[0] > buf_len(&w->out[0]);
    uint64_t n;
    if (!exit || exit->signaled || exit->code > 1) {
        json_decref(matches);
        call_refuse(c, ERR_FAILED_PRECONDITION, "grep: %.*s", (int)MIN(buf_len(&w->out[1]), (size_t)160),
                    buf_len(&w->out[1]) ? buf_data(&w->out[1]) : "");
        return;
    }
    while (rest.n && str_split(&rest, '\n', &line)) {
        if (!str_split(&line, '\0', &path) || !str_split(&line, ':', &number) || str_to_u64(number, &n) < 0)
            continue; /* the last one, cut */
        if (json_array_size(matches) == MCP_ITEMS_MAX) {
            is_cut = true;
            break;
        }
        (void)json_array_append_new(matches, json_pack("{s:o,s:I,s:o}", "path", call_text(path), "line", (json_int_t)n,
                                                       "text", call_text(mcp_cut(line, 500))));
    }
    tool_result(c, json_pack("{s:o,s:b}", "matches", matches, "truncated", is_cut), STR_NULL);
}

void file_search_tool(struct call *c)
{
    struct str pattern = STR(""), path = STR("."), include = STR("*");
    bool is_fixed = false;
    if (!TOOL_WANTS(c, JSON_NEED_STR("pattern", &pattern), JSON_WANT_STR("path", &path),
                    JSON_WANT_STR("include", &include), JSON_WANT_BOOL("fixed", &is_fixed)))
        return;
    const struct str args[] = {STR("-rnIHZs"),   STR("-m"), STR("100"), is_fixed ? STR("-F") : STR("-E"),
                               STR("--include"), include,   STR("-e"),  pattern,
                               STR("--"),        path};
    waited_start(c,
                 &(struct exec_spec){.cmd = STR("grep"),
                                     .args = args,
                                     .n_args = ARRAY_SIZE(args),
                                     .cwd = mcp_path(c, STR("")),
                                     .user = mcp_user(c, STR("")),
                                     .timeout_ms = MCP_EXEC_S * 1000},
                 search_done);
}

/* ---- commit: git, inside ---- */

/* "$1": the message. Hooks, signing and editors are the sandbox's own: they run inside. The last line is the commit. */
#define COMMIT "git add -A && git commit -q -m \"$1\" && git rev-parse HEAD"

static void commit_done(struct call *c, struct waited *w, const struct exec_exit *exit)
{
    struct str out = buf_str(&w->out[0]), said = buf_str(&w->out[1]);
    out.n -= str_ends(out, STR("\n"));
    said.n -= str_ends(said, STR("\n"));
    if (!exit || exit->signaled || exit->code || out.n < 40) {
        said = said.n ? said : out;
        call_refuse(c, ERR_FAILED_PRECONDITION, "git: %.*s", STR_ARG_MAX(said, 160));
        return;
    }
    tool_result(c, json_pack("{s:o}", "commit", call_text(str_sub(out, out.n - 40))), STR_NULL);
}

void commit_tool(struct call *c)
{
    struct str message = STR(""), path = STR("");
    if (!TOOL_WANTS(c, JSON_NEED_STR("message", &message), JSON_WANT_STR("path", &path)))
        return;
    const struct str args[] = {STR("-c"), STR(COMMIT), STR("sh"), message};
    waited_start(c,
                 &(struct exec_spec){.cmd = STR("/bin/sh"),
                                     .args = args,
                                     .n_args = ARRAY_SIZE(args),
                                     .cwd = mcp_path(c, path),
                                     .user = mcp_user(c, STR("")),
                                     .timeout_ms = MCP_EXEC_S * 1000},
                 commit_done);
}
