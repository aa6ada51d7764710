/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tools: one table, and what is the same for each call. A tool needs what the key's scope gives, whoever called it;
 * what it changes passes the gate like everybody's. No tool changes what a sandbox may reach but request_grant, which a
 * person answers.
 */
#include "api/mcp/handlers.h"
#include "base/id.h"
#include "base/mem.h"
#include "sandbox/key.h"

enum { EXPLANATION_MAX = 1024 };

#define ARG_SANDBOX "sandbox s! Id of the sandbox"
#define ENV "environment_id=sandbox environment_source= explanation= "

static void repository_tool(struct call *c)
{
    call_refuse(c, ERR_UNIMPLEMENTED,
                "%s is about a repository of the client's machine: 'cove mcp', started in the repository, has it",
                mcp_call_of(c)->tool->name);
}

const struct mcp_tool mcp_tools[] = {
    {"sandbox_create",
     "Makes a sandbox: an isolated Linux machine. Nothing gets out of it until a person grants it (request_grant).",
     "template s What it is made from: a template's or snapshot's name or id (base)|timeout_s i It ends after so many seconds (3600)|"
     "keep b It outlives the session that it was made in, until its time-out|env o Environment of all its processes|"
     "metadata o Labels|memory_mb i Memory in MiB|cpu_milli i Thousandths of a CPU",
     NULL, sandbox_create_tool, MCP_USES, MCP_WIDE},
    {"sandbox_list", "Lists the sandboxes there are, newest first.",
     "cursor i Where to go on: 'next' of the answer before", NULL, sandbox_list_tool, MCP_READS, MCP_HARMLESS},
    {"sandbox_kill", "Ends a sandbox. Its files are gone; its log stays for a while.", ARG_SANDBOX, NULL,
     sandbox_kill_tool, MCP_USES, MCP_SANDBOX | MCP_DESTRUCTIVE},
    {"exec",
     "Runs a command and waits for it, or starts it in the background. What is long is cut, and 'next' says where exec_output goes on.",
     ARG_SANDBOX
     "|command s A line for the shell (bash where there is one); else argv|argv S A program and its arguments, without a shell|"
     "cwd s Directory to run in|env o Environment|user s Who runs it (the template's user)|timeout_s i It is killed after so many seconds "
     "(120; in the background: none)|background b Don't wait: exec_output tells how it is doing, exec_kill ends it",
     NULL, exec_tool, MCP_USES, MCP_SANDBOX | MCP_DESTRUCTIVE},
    {"exec_output", "The output of a command that is long, or that runs in the background, and how it ended.",
     ARG_SANDBOX
     "|exec s! 'exec' of the answer to exec|channel s stdout (the default) or stderr; in the background both are one|"
     "offset i In bytes: 'next' of the answer before (0)",
     NULL, exec_output_tool, MCP_READS, MCP_SANDBOX | MCP_HARMLESS},
    {"exec_kill", "Sends a signal to a command in the background.",
     ARG_SANDBOX "|exec s! 'exec' of the answer to exec|signal i 15, or 9", NULL, exec_kill_tool, MCP_USES,
     MCP_SANDBOX | MCP_DESTRUCTIVE},
    {"run_code",
     "Runs code; variables, functions and imports stay for the next call in that language. For templates with runners, as code-interpreter.",
     ARG_SANDBOX "|code s! The code|language s python (the default), javascript, bash, and what else the template has",
     NULL, run_code_tool, MCP_USES, MCP_SANDBOX | MCP_DESTRUCTIVE},
    {"file_read", "Reads a file, or a part of it.",
     ARG_SANDBOX "|path s! Path of the file|offset i In bytes: 'next' of the answer before (0)|"
                 "start_line i The first line wanted, from 1|end_line i The last one",
     NULL, file_read_tool, MCP_READS, MCP_SANDBOX | MCP_HARMLESS},
    {"file_write", "Writes a file, with the directories above it; what was there is replaced.",
     ARG_SANDBOX "|path s! Path of the file|content s! What it holds|base64 b The content is base64", NULL,
     file_write_tool, MCP_USES, MCP_SANDBOX | MCP_DESTRUCTIVE},
    {"file_edit", "Replaces text in a file. The text must be there once, unless which or all says more.",
     ARG_SANDBOX
     "|path s! Path of the file|search s! The text, exactly|replace s! What takes its place|which s Which of several: 1 is the first|"
     "all b Each of them",
     NULL, file_edit_tool, MCP_USES, MCP_SANDBOX | MCP_DESTRUCTIVE},
    {"file_list", "Lists a directory.",
     ARG_SANDBOX "|path s! The directory|depth i How deep (1)|cursor i 'next' of the answer before", NULL,
     file_list_tool, MCP_READS, MCP_SANDBOX | MCP_HARMLESS},
    {"file_search", "Finds lines in files, by grep: binary files are left out.",
     ARG_SANDBOX
     "|pattern s! An extended regular expression|path s Directory or file (the current one)|include s Names of files, as *.py|"
     "fixed b The pattern is text as it is",
     NULL, file_search_tool, MCP_USES, MCP_SANDBOX | MCP_HARMLESS},
    {"snapshot", "Keeps a sandbox's files as a template: sandbox_create makes sandboxes from it.",
     ARG_SANDBOX "|name s Its name; without one it has an id", NULL, snapshot_tool, MCP_USES, MCP_SANDBOX | MCP_WIDE},
    {"fork", "Makes copies of a sandbox with its files as they are; processes are not copied.",
     ARG_SANDBOX "|count i How many (1)|timeout_s i They end after so many seconds (as the original)", NULL, fork_tool,
     MCP_USES, MCP_SANDBOX | MCP_WIDE},
    {"diff", "Lists the files that differ between a sandbox and what it stands on, or something else.",
     ARG_SANDBOX "|against s A template's, snapshot's or sandbox's name or id", NULL, diff_tool, MCP_READS,
     MCP_SANDBOX | MCP_WIDE | MCP_HARMLESS},
    {"commit", "Commits all changes of a Git repository in a sandbox, there: git add -A, git commit.",
     ARG_SANDBOX
     "|message s! What it is about|path s The repository; without: the one that the environment is a copy of",
     NULL, commit_tool, MCP_USES, MCP_SANDBOX | MCP_DESTRUCTIVE},
    {"propose", "", "", NULL, repository_tool, MCP_USES, MCP_ABSENT},
    {"policy_show", "What a sandbox may reach on the network.", ARG_SANDBOX, NULL, policy_tool, MCP_READS,
     MCP_SANDBOX | MCP_HARMLESS},
    {"denials_list", "What a sandbox was denied: connections, names, actions.",
     ARG_SANDBOX "|from i 'next' of the answer before (0: the log's beginning)", NULL, denials_tool, MCP_READS,
     MCP_SANDBOX | MCP_HARMLESS},
    {"request_grant", "Asks a person to let a sandbox reach hosts. Nothing changes unless they allow it.",
     ARG_SANDBOX
     "|hosts S! Names (example.com, *.example.com), addresses or networks|ports I Ports; without: all|reason s! Why, for the person",
     NULL, grant_tool, MCP_USES, MCP_SANDBOX | MCP_WIDE},
    {"events_since", "The log of a sandbox: what was done, by whom, and what came of it.",
     ARG_SANDBOX
     "|from i 'next' of the answer before (0: the log's beginning)|kinds S Beginnings of kinds, as exec. or net.denied",
     NULL, events_tool, MCP_READS, MCP_SANDBOX | MCP_HARMLESS},

    /* container-use's. Those that are about a repository of the client's machine are done there (cli/env/tools.h). */
    {"environment_create",
     "Makes an environment: a sandbox. The repository isn't in it: clone it inside, or write its files.",
     "title s! What it is for|source s Kept as a label|from_git_ref s Refused: no repository is copied",
     "environment_source=source explanation= allow_replace=", sandbox_create_tool, MCP_USES, MCP_WIDE},
    {"environment_open", "Shows an environment.", ARG_SANDBOX, ENV, sandbox_show_tool, MCP_READS,
     MCP_SANDBOX | MCP_HARMLESS},
    {"environment_list", "Lists the environments there are.", "cursor i 'next' of the answer before", ENV,
     sandbox_list_tool, MCP_READS, MCP_HARMLESS},
    {"environment_update_metadata", "Sets an environment's title.", ARG_SANDBOX "|title s! The title", ENV,
     sandbox_title_tool, MCP_USES, MCP_SANDBOX},
    {"environment_run_cmd", "Runs a command in an environment.",
     ARG_SANDBOX "|command s! A line for the shell|background b Don't wait for it: exec_output tells how it is doing",
     ENV "shell= use_entrypoint= ports=", exec_tool, MCP_USES, MCP_SANDBOX | MCP_DESTRUCTIVE},
    {"environment_file_read", "Reads a file of an environment.",
     ARG_SANDBOX "|path s! The file|start_line i The first line wanted, from 1|end_line i The last one",
     ENV
     "target_file=path should_read_entire_file= start_line_one_indexed_inclusive=start_line end_line_one_indexed_inclusive=end_line",
     file_read_tool, MCP_READS, MCP_SANDBOX | MCP_HARMLESS},
    {"environment_file_write", "Writes a file of an environment.",
     ARG_SANDBOX "|path s! The file|content s! What it holds", ENV "target_file=path contents=content", file_write_tool,
     MCP_USES, MCP_SANDBOX | MCP_DESTRUCTIVE},
    {"environment_file_edit", "Replaces text in a file of an environment.",
     ARG_SANDBOX
     "|path s! The file|search s! The text, exactly|replace s! What takes its place|which s Which of several: 1 is the first",
     ENV "target_file=path search_text=search replace_text=replace which_match=which", file_edit_tool, MCP_USES,
     MCP_SANDBOX | MCP_DESTRUCTIVE},
    {"environment_file_list", "Lists a directory of an environment.", ARG_SANDBOX "|path s! The directory", ENV,
     file_list_tool, MCP_READS, MCP_SANDBOX | MCP_HARMLESS},
    {"environment_file_delete", "Deletes a file of an environment.", ARG_SANDBOX "|path s! The file",
     ENV "target_file=path", file_delete_tool, MCP_USES, MCP_SANDBOX | MCP_DESTRUCTIVE},
    {"environment_checkpoint", "Keeps an environment's files as a template, from which others can be made.",
     ARG_SANDBOX "|name s! Its name", ENV "destination=name", snapshot_tool, MCP_USES, MCP_SANDBOX | MCP_WIDE},
    {"environment_log", "", "", NULL, repository_tool, MCP_READS, MCP_ABSENT},
    {"environment_diff", "", "", NULL, repository_tool, MCP_READS, MCP_ABSENT},
    {"environment_config",
     "Changes an environment from now on: runs setup commands in it, which stop at the first that fails, and sets "
     "variables for what starts later. The base image stays; a new environment can have another one.",
     ARG_SANDBOX "|config j! {\"base_image\", \"setup_commands\": [..], \"envs\": [\"NAME=value\", ..]}", ENV,
     environment_config_tool, MCP_USES, MCP_SANDBOX | MCP_DESTRUCTIVE},
    {"environment_add_service",
     "Adds a service (a database, a cache) to an environment: a program of another image, which is pulled if need be. "
     "It is reached at its name, and at 127.0.0.1, and is ready when this answers.",
     ARG_SANDBOX
     "|name s! Its name, and host name|image s! An image, or a template's name"
     "|command s A line for sh (what the image says)|ports I Ports at which it listens: it is ready when somebody does"
     "|env S Its variables: NAME=value",
     ENV "envs=env", environment_add_service_tool, MCP_USES, MCP_SANDBOX | MCP_DESTRUCTIVE},
};
const size_t mcp_n_tools = ARRAY_SIZE(mcp_tools);

/* ---- their description ---- */

/* What a client calls an argument that is ours; *ret_dropped: and what it may say besides. */
static struct str tool_their_name(const struct mcp_tool *t, struct str ours)
{
    struct str rest = str_of(t->renames ? t->renames : ""), one, theirs;
    while (str_split(&rest, ' ', &one))
        if (str_split(&one, '=', &theirs) && str_eq(one, ours))
            return theirs;
    return ours;
}

static json_t *tool_type(char letter)
{
    static const struct {
        char letter;
        const char *type, *items;
    } types[] = {{'s', "string", NULL}, {'i', "integer", NULL},   {'b', "boolean", NULL},   {'o', "object", NULL},
                 {'j', "object", NULL}, {'S', "array", "string"}, {'I', "array", "integer"}};
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        if (types[i].letter == letter) {
            json_t *schema = json_pack("{s:s}", "type", types[i].type);
            if (types[i].items)
                (void)json_object_set_new(schema, "items", json_pack("{s:s}", "type", types[i].items));
            if (letter == 'o')
                (void)json_object_set_new(schema, "additionalProperties", json_pack("{s:s}", "type", "string"));
            return schema;
        }
    assert(false);
    return NULL;
}

static void schema_add(json_t *properties, struct str name, char type, struct str what)
{
    json_t *one = tool_type(type);
    (void)json_object_set_new(one, "description", call_text(what));
    (void)json_object_setn_new(properties, name.p, name.n, one);
}

static json_t *tool_schema(const struct mcp_tool *t)
{
    json_t *properties = json_object(), *required = json_array();
    struct str rest = str_of(t->args), arg, name, type, ours;
    while (rest.n && str_split(&rest, '|', &arg)) {
        (void)str_split(&arg, ' ', &ours);
        (void)str_split(&arg, ' ', &type);
        name = tool_their_name(t, ours);
        schema_add(properties, name, type.p[0], arg);
        if (type.n > 1)
            (void)json_array_append_new(required, json_stringn(name.p, name.n));
    }
    rest = str_of(t->renames ? t->renames : "");
    while (rest.n && str_split(&rest, ' ', &arg))
        if (str_ends(arg, STR("=")))
            schema_add(properties, str_n(arg.p, arg.n - 1),
                       str_starts(arg, STR("use_")) || str_starts(arg, STR("should_")) || str_starts(arg, STR("allow_"))
                           ? 'b'
                       : str_starts(arg, STR("ports")) ? 'I'
                                                       : 's',
                       str_starts(arg, STR("explanation"))
                           ? STR("Why this is done: it stands in the record, and 'cove why' shows it")
                           : STR("Ignored"));
    return json_pack("{s:s,s:o,s:o,s:b}", "type", "object", "properties", properties, "required", required,
                     "additionalProperties", 0);
}

json_t *tools_describe(void)
{
    json_t *all = json_array();
    for (size_t i = 0; i < mcp_n_tools; i++) {
        const struct mcp_tool *t = &mcp_tools[i];
        if (!(t->flags & MCP_ABSENT))
            (void)json_array_append_new(all, json_pack("{s:s,s:s,s:o,s:{s:b,s:b,s:b}}", "name", t->name, "description",
                                                       t->description, "inputSchema", tool_schema(t), "annotations",
                                                       "readOnlyHint", (t->flags & MCP_HARMLESS) != 0,
                                                       "destructiveHint", (t->flags & MCP_DESTRUCTIVE) != 0,
                                                       "openWorldHint", t->handler == exec_tool));
    }
    return all;
}

/* ---- a call ---- */

bool tool_wants(struct call *c, const struct json_want *wants, size_t n)
{
    struct str ignored;
    struct json_want all[16];
    assert(n < ARRAY_SIZE(all));
    if (n)
        memcpy(all, wants, n * sizeof(*wants));
    all[n] = (struct json_want)JSON_WANT_STR("sandbox", &ignored);
    return call_ok(c, json_wants(mcp_call_of(c)->args, all, n + 1, http_arena(c->req), true, &c->err));
}

/* The arguments under our names. What the client's names for them are is all that differs. */
static json_t *tool_renamed(const struct mcp_tool *t, const json_t *given)
{
    json_t *args = json_object();
    JSON_FOREACH_MEMBER (key, value, given) {
        struct str rest = str_of(t->renames ? t->renames : ""), one, theirs, name = str_of(key);
        while (rest.n && str_split(&rest, ' ', &one))
            if (str_split(&one, '=', &theirs) && str_eqc(theirs, key))
                name = one;
        if (name.n)
            (void)json_object_setn(args, name.p, name.n, value);
    }
    return args;
}

static bool mcp_may(struct call *c, enum mcp_rights rights)
{
    if (rights == MCP_READS || access_may_use(&c->actor.who))
        return true;
    return call_refuse(c, ERR_PERMISSION_DENIED, "this API key's scope is '%s', but this needs '%s'",
                       scope_name(c->actor.who.scope), scope_name(SCOPE_USE));
}

/* False: answered. */
static bool tool_find_sandbox(struct call *c)
{
    struct str id = STR("");
    if (!call_ok(c, json_get_str(mcp_call_of(c)->args, "sandbox", &id, &c->err)))
        return false;
    if (!id.n)
        return call_refuse(c, ERR_INVALID_ARGUMENT, "the argument 'sandbox' is missing");
    struct sandbox *sb = id_is_sandbox(id) ? access_find_sandbox(c, id) : NULL;
    if (!sb || sandbox_info(sb)->hidden)
        return call_refuse(c, ERR_NOT_FOUND, "there is no sandbox %.*s", STR_ARG_MAX(id, 64));
    if (!c->sandbox)
        c->sandbox = sandbox_ref(sb);
    return true;
}

void tools_call(struct call *c)
{
    struct mcp_call *m = mcp_call_of(c);
    const char *name = json_string_value(json_object_get(m->params, "name"));
    const json_t *args = json_object_get(m->params, "arguments");
    const char *explanation = json_string_value(json_object_get(args, "explanation"));
    const struct mcp_tool *tool = NULL;
    for (size_t i = 0; name && i < mcp_n_tools; i++)
        tool = strcmp(mcp_tools[i].name, name) == 0 ? &mcp_tools[i] : tool;
    if (!tool || (args && !json_is_object(args))) {
        rpc_error(c, m->is_modern ? 400 : 200, RPC_PARAMS, NULL,
                  tool ? "arguments must be an object" : "there is no tool %.100s", name ? name : "");
        return;
    }
    m->tool = tool;
    c->actor.explanation =
        mcp_cut(str_of(explanation ? explanation : ""), EXPLANATION_MAX); /* an event has room for as much */
    m->args = tool_renamed(tool, args);
    (void)json_object_set_new(c->body, "arguments", m->args);
    if (c->actor.who.sandbox && (tool->flags & MCP_WIDE)) {
        call_refuse(c, ERR_PERMISSION_DENIED, "this API key is for sandbox %s alone", c->actor.who.sandbox);
        return;
    }
    if (mcp_may(c, tool->rights) && (!(tool->flags & MCP_SANDBOX) || tool_find_sandbox(c)))
        tool->handler(c);
}

void tool_result(struct call *c, json_t *content, struct str text)
{
    AUTO_FREE char *dumped = text.p ? NULL : json_dumps(content, JSON_COMPACT);
    rpc_result(c, json_pack("{s:[{s:s,s:o}],s:o}", "content", "type", "text", "text",
                            call_text(dumped ? str_of(dumped) : text), "structuredContent", content));
}

/* ---- values ---- */

struct str mcp_cut(struct str s, size_t max)
{
    size_t n = MIN(s.n, max);
    for (size_t back = 0; n < s.n && back < 4 && n > back; back++)
        if (((unsigned char)s.p[n - back] & 0xc0) != 0x80)
            return str_n(s.p, n - back);
    return str_n(s.p, n);
}
