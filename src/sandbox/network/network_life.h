/* SPDX-License-Identifier: Apache-2.0 */
/* The network in the life of the core and of a sandbox; what façades use is in network.h. Not for façades. */
#pragma once

#include "sandbox/network/network.h"
#include "sandbox/object.h"

/* network.c: hooks of a sandbox's life; what façades use is in network.h */
struct networks *networks_new(struct core *core);
void networks_free(struct networks *all);           /* accepts NULL */
void networks_attach(struct networks *all, int fd); /* takes it */
bool networks_are_up(const struct networks *all);

int network_unavailable(struct err *err); /* sets ERR_UNAVAILABLE, returns -1 */
int network_check_spec(const struct core *core, const struct sandbox_spec *spec, struct err *err) WARN_UNUSED;
void network_new(struct sandbox *sb, const struct sandbox_spec *spec);
bool network_is_plain(const struct sandbox *sb); /* all of the Internet, and nothing under way */
void network_replace(struct sandbox *sb, const struct sandbox_spec *spec);
void network_new_like(struct sandbox *sb, const struct sandbox *of);
/* The policy that is asked for, for the guard and for the record; nothing, STR_NULL, if it is the default one. */
struct str network_describe(const struct sandbox *sb, struct event_data *d);
/*
 * START_NETWORK: sends the policy to cove-egress, also after network_forget(). seq: of the action that wants it. 1: it
 * was sent.
 */
int network_begin(struct sandbox *sb, uint64_t seq, struct err *err) WARN_UNUSED;
bool network_wants_ca(const struct sandbox *sb);                         /* its certificate is not inside yet */
int network_install_ca(struct sandbox *sb, struct err *err) WARN_UNUSED; /* START_CERTIFICATE */
/* Into a nest with a root of its own. 1: there is none, and done isn't called. */
struct ca_install;
int network_install_ca_in(struct sandbox *nest, network_fn done, void *ctx, struct ca_install **ret_install,
                          struct err *err) WARN_UNUSED;
void ca_install_cancel(struct ca_install *i); /* NULL is fine */
void network_recover(struct sandbox *sb);     /* taken over from another worker */
void network_forget(struct sandbox *sb);      /* it is on its way out */
void network_end_log(struct sandbox *sb);     /* its last event comes next */
void network_free(struct sandbox *sb);
char *network_row(const struct sandbox *sb); /* for its column; free with mem_free() */
void network_from_row(struct sandbox *sb, const char *text);
#define NETWORK_CA_FILE "/usr/local/share/ca-certificates/cove-sandbox.crt"
#define NETWORK_CA_BUNDLE "/etc/ssl/certs/ca-certificates.crt"
/* The variables by which programs find the certificate; the user's own win. */
/* which: 0, of certificates; 1, of the service. */
const struct pair *network_envs(const struct sandbox *sb, unsigned which, size_t *ret_n);
