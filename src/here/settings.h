/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings file of sandbox-runtime (srt), read whole: every key that means something on Linux does what it says or
 * is refused by its name, and so is every key that is not known. Keys of other systems, and those that name srt's own
 * helpers, are taken and mean nothing.
 */
#pragma once

#include "base/err.h"
#include "base/json.h"

struct settings_list {
    char **items;
    size_t n;
};

struct settings_secret {
    char *name;    /* of the variable; NULL: a file */
    char *path;    /* of the file, as it was written */
    bool is_mask;  /* else it is taken away */
    json_t *hosts; /* masked: patterns of hosts that get the real one */
};

struct settings {
    json_t *rules; /* a policy's: what is denied first */
    bool wants_network;
    bool all_unix_sockets, weaker_nested, files_disabled, git_config;
    unsigned search_depth;
    struct settings_list deny_read, allow_read, allow_write, deny_write, safe_directories;
    struct settings_secret *secrets;
    size_t n_secrets;
    json_t *reasons; /* deniedDomainReasons, or NULL */
    json_t *muted;   /* ignoreViolations, or NULL */
    char *trust;     /* file with a further CA; NULL */
};

/* Messages begin with the key: "network.mitmProxy: ...". text NULL: what holds without a file. */
int settings_parse(const char *text, size_t n, struct settings **ret_settings, struct err *err) WARN_UNUSED;
/* Of what is denied at that host, by deniedDomainReasons. NULL: there is none. Borrowed. */
json_t *settings_reason(const struct settings *s, const char *host);
void settings_list_add(struct settings_list *list, const char *item);
void settings_free(struct settings *s);
DEFINE_AUTO(struct settings *, settings_free)
