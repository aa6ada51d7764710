/* SPDX-License-Identifier: Apache-2.0 */
/* Container-use's tools that change what an environment consists of. */
#include "api/kit/service_ask.h"
#include "api/mcp/handlers.h"
#include "base/mem.h"
#include "http/client/docker_names.h"

#include <stdio.h>
#include <string.h>

enum { MCP_SETUP_S = 3600 };

/* "NAME=value", as both tools have variables. NULL: answered. */
static struct pair *environment_pairs(struct call *c, const struct str *lines, size_t n)
{
    struct pair *all = arena_alloc(http_arena(c->req), (n + 1) * sizeof(*all));
    for (size_t i = 0; i < n; i++) {
        ssize_t eq = str_find_char(lines[i], '=');
        if (eq <= 0) {
            call_refuse(c, ERR_INVALID_ARGUMENT, "envs: '%.*s' is not NAME=value", STR_ARG_MAX(lines[i], 64));
            return NULL;
        }
        all[i] = (struct pair){str_n(lines[i].p, (size_t)eq), str_sub(lines[i], (size_t)eq + 1)};
    }
    return all;
}

/* ---- environment_add_service ---- */

static void environment_has_service(struct call *c, const struct service_ask *a, const struct sandbox_service *s)
{
    AUTO_JSON json_t *told = service_json(s);
    json_t *env = json_array(), *endpoints = json_object();
    for (size_t i = 0; i < a->spec.n_envs; i++)
        (void)json_array_append_new(env, call_text(a->spec.envs[i].key)); /* values may be secrets */
    for (size_t i = 0; i < a->spec.n_ports; i++) {
        char port[8];
        (void)snprintf(port, sizeof(port), "%u", a->spec.ports[i]);
        json_t *at =
            json_pack("{s:o,s:o}", "environment_internal", json_sprintf("tcp://%.*s:%s", STR_ARG(a->spec.name), port),
                      "host_external", json_sprintf("cove url %s %s", sandbox_info(c->sandbox)->id, port));
        (void)json_object_set_new(endpoints, port, at);
    }
    json_t *content =
        json_pack("{s:{s:O,s:O,s:O*,s:O,s:o},s:o}", "config", "name", json_object_get(told, "name"), "image",
                  json_object_get(mcp_call_of(c)->args, "image"), "command", json_object_get(told, "command"),
                  "exposed_ports", json_object_get(told, "ports"), "env", env, "endpoints", endpoints);
    AUTO_FREE char *dumped = json_dumps(content, JSON_COMPACT);
    tool_result(c, content,
                str_of(arena_printf(http_arena(c->req), "Service added and started successfully: %s", dumped)));
}

void environment_add_service_tool(struct call *c)
{
    struct service_ask *a = arena_alloc(http_arena(c->req), sizeof(*a));
    struct str image = STR("");
    const struct str *envs = NULL;
    json_t *ports = NULL;
    size_t n_envs = 0;
    *a = (struct service_ask){.pull.builder = mcp_of(c)->config.builder, .done = environment_has_service};
    if (!TOOL_WANTS(c, JSON_NEED_STR("name", &a->spec.name), JSON_NEED_STR("image", &image),
                    JSON_WANT_STR("command", &a->spec.command), JSON_WANT_ARRAY("ports", &ports),
                    JSON_WANT_STRS("env", &envs, &n_envs)))
        return;
    a->spec.envs = environment_pairs(c, envs, n_envs);
    a->spec.n_envs = n_envs;
    a->ports = ports;
    a->pull.spec.image = image.p;
    if (a->spec.envs)
        service_ask(c, a);
}

/* ---- environment_config ---- */

struct environment_config {
    struct str image;
    const struct str *commands, *envs;
    size_t n_commands, n_envs;
};

/* Read anew by each step. False: answered. */
static bool environment_read(struct call *c, struct environment_config *e)
{
    json_t *config = NULL;
    *e = (struct environment_config){.image = STR("")};
    return TOOL_WANTS(c, JSON_WANT_OBJECT("config", &config)) &&
           call_ok(c, JSON_WANTS(config, http_arena(c->req), &c->err, JSON_WANT_STR("base_image", &e->image),
                                 JSON_WANT_STRS("setup_commands", &e->commands, &e->n_commands),
                                 JSON_WANT_STRS("envs", &e->envs, &e->n_envs)));
}

static json_t *environment_told(const struct call *c)
{
    const struct sandbox_info *i = sandbox_info(c->sandbox);
    json_t *names = json_array();
    for (size_t k = 0; k < i->n_envs; k++)
        (void)json_array_append_new(names, call_text(i->envs[k].key));
    return json_pack("{s:s,s:s,s:o}", "environment_id", i->id, "base_image",
                     i->template_alias ? i->template_alias : i->template_id, "env", names);
}

static void environment_is_set_up(struct call *c, struct waited *w, const struct exec_exit *exit)
{
    json_t *content = environment_told(c);
    bool is_good = exit && !exit->signaled && !exit->code;
    struct str said = mcp_cut(buf_str(&w->out[1]), 4096);
    if (exit)
        (void)json_object_set_new(content, exit->signaled ? "signal" : "exit_code", json_integer(exit->code));
    (void)json_object_set_new(content, "output", call_text(mcp_cut(buf_str(&w->out[0]), MCP_TEXT_MAX)));
    (void)json_object_set_new(content, "stderr", call_text(said));
    tool_result(c, content,
                str_of(arena_printf(http_arena(c->req),
                                    is_good ? "The setup commands ran, and the environment goes on with what they "
                                              "changed. Nothing was restarted."
                                            : "A setup command failed; those behind it did not run:\n%.*s",
                                    STR_ARG(said))));
}

static void environment_set_up(struct call *c)
{
    static const struct str words[] = {STR("-c"), STR("for each; do /bin/sh -c \"$each\" || exit; done"), STR("sh")};
    struct environment_config e;
    if (!environment_read(c, &e))
        return;
    if (!e.n_commands) {
        tool_result(c, environment_told(c), STR_NULL);
        return;
    }
    struct str *args = arena_alloc(http_arena(c->req), (ARRAY_SIZE(words) + e.n_commands) * sizeof(*args));
    memcpy(args, words, sizeof(words));
    memcpy(args + ARRAY_SIZE(words), e.commands, e.n_commands * sizeof(*args));
    const struct exec_spec spec = {.cmd = STR("/bin/sh"),
                                   .args = args,
                                   .n_args = ARRAY_SIZE(words) + e.n_commands,
                                   .cwd = mcp_path(c, STR("")),
                                   .user = mcp_user(c, STR("")),
                                   .timeout_ms = MCP_SETUP_S * 1000};
    waited_start(c, &spec, environment_is_set_up);
}

static bool environment_is_made_of(const struct call *c, struct str image)
{
    const struct sandbox_info *i = sandbox_info(c->sandbox);
    AUTO_FREE char *given = mem_strndup(image.p, image.n);
    AUTO_FREE char *name = docker_template(given);
    return str_eqc(image, i->template_id) ||
           (i->template_alias && (str_eqc(image, i->template_alias) || strcmp(name, i->template_alias) == 0));
}

void environment_config_tool(struct call *c)
{
    const struct sandbox_info *i = sandbox_info(c->sandbox);
    struct environment_config e;
    if (!environment_read(c, &e))
        return;
    if (e.image.n && !environment_is_made_of(c, e.image)) {
        call_refuse(c, ERR_UNIMPLEMENTED,
                    "base_image: an environment keeps the one that it was made of; 'template' of .cove/env.yaml says "
                    "it for new ones");
        return;
    }
    if (e.n_envs) {
        struct pair *given = environment_pairs(c, e.envs, e.n_envs),
                    *all = arena_alloc(http_arena(c->req), (e.n_envs + i->n_envs) * sizeof(*all));
        size_t n = 0;
        if (!given)
            return;
        for (size_t k = 0; k < i->n_envs; k++) {
            bool is_given = false;
            for (size_t j = 0; j < e.n_envs; j++)
                is_given |= str_eq(given[j].key, i->envs[k].key);
            if (!is_given)
                all[n++] = i->envs[k];
        }
        memcpy(all + n, given, e.n_envs * sizeof(*all));
        if (!call_ok(c, sandbox_set_envs(c->sandbox, &c->actor, all, n + e.n_envs, &c->err)))
            return;
    }
    call_step(c, environment_set_up);
}
