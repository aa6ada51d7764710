/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the network know of each other. */
#pragma once

#include "sandbox/network/egress_link.h"
#include "sandbox/network/network.h"
#include "sandbox/object.h"

/* Where Debian's Java looks; other Javas get JAVA_TOOL_OPTIONS. */
#define NETWORK_CA_JAVA "/etc/ssl/certs/java/cacerts"

enum {
    NETWORK_FLOWS_PER_SEC = 200, /* that are logged one by one */
    NETWORK_FLOWS_MAX = 4096,    /* logged ones that are open */
};

struct networks {
    struct core *core;
    struct egress_link *link;
    /* The last policy asked for and its normalised form, until a sandbox is made with it. References. */
    json_t *asked, *checked;
};

/* Of flows that are not logged one by one, until they are logged together. */
struct flow_sums {
    uint64_t opened, closed, sent, received;
    usec_t since; /* monotonic */
};

struct network {
    struct sandbox *sb; /* owns us */
    json_t *policy;     /* as cove-egress gets it */
    json_t *fields;     /* NULL: none */
    char *ca, *ca_pem;  /* NULL: nothing was intercepted yet */
    char sealed_for[ID_SANDBOX_LEN +
                    1]; /* of a fork: the sandbox whose sealed values its policy contains; "": its own */
    bool has_rules;     /* were asked for: without cove-egress the sandbox can't be made */
    bool has_ca;        /* ca_pem is in the sandbox */
    bool is_over;
    enum { NETWORK_UNKNOWN, NETWORK_UP, NETWORK_DOWN } state;
    struct change *change;    /* under way */
    struct egress_call *push; /* the policy, told again */
    struct loop_alarm retry;
    struct ca_install *install;
    struct list asks;            /* network_ask.c */
    json_t *refused;             /* rules that were asked about and denied; NULL: none */
    network_denied_fn on_denied; /* NULL: nobody watches */
    void *denied_ctx;

    uint64_t n_told; /* events, of this worker */
    usec_t period;   /* monotonic: when the current one began */
    unsigned opened_in_period;
    struct map logged; /* open flows whose net.open is in the log: number -> its seq */
    struct flow_sums sums;
    struct loop_alarm sums_alarm;
};

/* network.c */
struct egress_link *network_link(const struct network *n);
struct egress_link *network_link_of(const struct networks *all);
const char *network_sealed_for(const struct network *n);
bool network_closes(const struct network *n); /* it, or the core: nothing is recorded any more */
json_t *network_policy_message(const struct network *n, json_t *policy);
void network_set_state(struct network *n, int state, const char *why); /* with its event; why may be NULL */
void network_push(struct network *n); /* tells the policy once more, now if it can be */
void network_retry_later(struct network *n);
/* Takes the CA of an answer to "policy". *ret_is_new: its certificate is another one than before. -1: a lie. */
int network_take_ca(struct network *n, const json_t *answer, bool *ret_is_new, struct err *err) WARN_UNUSED;

/* network_change.c */
void change_begin_with(struct network *n, json_t *policy); /* steals it; network_begin() goes on */
bool change_asks(const struct network *n);                 /* cove-egress, at the moment */
void change_cancel(struct network *n);                     /* its client learns that the sandbox has ended */

/* network_policy.c */
/* Parsed and normalised. NULL: ERR_INVALID_ARGUMENT. */
json_t *policy_normalise(const json_t *policy, struct err *err) WARN_UNUSED;
json_t *policy_default(bool allow_internet);
json_t *network_default(const struct core *core, bool allow_internet); /* the service's, or all */
/* Rules, names and header names; nothing that could be secret. */
void policy_describe(const json_t *policy, struct event_data *d);

/* A piece of a header's value that must be sealed. */
struct policy_literal {
    json_t *header;
    size_t from, to; /* in its "value" */
};
/* As it is told cove-egress: secrets of other tenants than the default one are called "_tenant-<number>.<name>" there,
 * those of tenants of uids (tenant_of_uid()) "_uid-<number>.<name>". A new reference. */
struct policy_owner {
    uint64_t tenant;
    const char *name;
};
json_t *policy_of_tenant(const json_t *policy, const struct policy_owner *tenant);
json_t *policy_of_sandbox(const json_t *policy, const struct sandbox *sb);

bool policy_next_literal(const json_t *policy, struct policy_literal *ret_literal);
void policy_literal_text(const struct policy_literal *l, struct buf *to); /* what it stands for */
void policy_literal_sealed(const struct policy_literal *l, struct str sealed);

/* network_log.c */
/* False: it makes no sense. */
bool network_log(struct networks *all, const char *op, json_t *message);
void network_log_stop(struct network *n); /* what was not reported yet */

/* network_ask.c: this rule would have allowed it; NULL: none is suggested */
void network_ask(struct network *n, const char *suggestion);
void network_asks_free(struct network *n);

/* network_ca.c: done comes later, but for -1. */
struct ca_install;
int ca_install(struct sandbox *sb, const char *pem, network_fn done, void *ctx, struct ca_install **ret_install,
               struct err *err) WARN_UNUSED;
void network_ca_installed(struct network *n, const struct err *err); /* it is in place, or can't be */
