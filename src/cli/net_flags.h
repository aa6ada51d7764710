/* SPDX-License-Identifier: Apache-2.0 */
/* The flags of a command that say what a sandbox may reach, as a policy for the native API. */
#pragma once

#include "base/buf.h"
#include "base/json.h"
#include "cli/command.h"

#define NET_FLAGS                                                                                                      \
    {0, "net", "allow|deny",                                                                                           \
     "What happens to connections that no rule matches. Default: deny if there is an --allow, "                        \
     "otherwise allow."},                                                                                              \
        {0, "allow", "TARGET",                                                                                         \
         "Lets it connect there: a name, *.name, an address, a network or a preset (@npm; 'cove "                      \
         "policy presets'); :PORT or :FROM-TO behind it, or several with commas. May be given "                        \
         "several times; the first rule that matches decides."},                                                       \
        {0, "deny", "TARGET", "Denies connections there. May be given several times."},                                \
    {                                                                                                                  \
        0, "policy", "FILE",                                                                                           \
            "Takes a whole policy from this YAML or JSON file; rules of other flags come before its own."              \
    }
#define NET_SECRET_FLAG                                                                                                \
    {                                                                                                                  \
        0, "secret", "NAME[=HOST]",                                                                                    \
            "Lets requests to HOST use a secret ('cove secret'): the variable NAME holds a stand-in, "                 \
            "which is replaced outside of the sandbox. Without HOST, requests to every name that "                     \
            "--allow lists. HOST is allowed as well. May be given several times."                                      \
    }

struct net_flags {
    const char *otherwise, *policy_file; /* NULL: not given */
    json_t *rules;                       /* of --allow and --deny, in order */
    json_t *secrets;                     /* NAME -> [hosts] */
    bool has_allow;
};

/* One of the flags above; net: a struct net_flags. -1: ctx->err. */
int net_flags_take(struct context *ctx, void *net, const char *flag, const char *value) WARN_UNUSED;

/*
 * The policy of all flags, NULL when there was none; and the variables that hold stand-ins, added to *env (which may be
 * NULL and is made when needed). Blocks on the policy's file.
 */
int net_flags_policy(struct context *ctx, struct net_flags *f, json_t **env, json_t **ret_policy) WARN_UNUSED;
void net_flags_fini(struct net_flags *f);

/* {"allow": TARGET, "ports": [...]}. NULL: it is none. */
json_t *net_flags_rule(const char *verdict, struct str text);

/* The way back: appends "--allow TARGET:PORTS", as a shell takes it. False, and nothing is: flags can't say this
 * rule. */
bool net_flags_write(struct buf *b, const json_t *rule);

/* Appends how to have what a rule (JSON) would allow that the service suggests: by a flag, where one can say it. */
void net_flags_suggest(struct buf *b, const char *rule);
