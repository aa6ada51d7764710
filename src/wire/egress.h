/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What cove-egress is told, and what it says.
 *
 * By coved, over the SOCK_SEQPACKET pair that it was born with: struct egress_order, one way. coved is root and
 * trusted.
 *
 * By cove-api, over a SOCK_SEQPACKET pair that coved gave to both (EGRESS_API; a new one whenever one of the two is
 * new): one JSON object a message, at most EGRESS_MESSAGE_MAX bytes. Neither trusts the other: what is malformed closes
 * the socket, which coved does not renew before one of them is replaced.
 *
 *   api -> egress                                                  answer (same "tag")
 *   {"op":"policy","tag":1,"id":ID,"policy":{...},"ca":SEALED?,    {"op":"done","tag":1,"ca":SEALED,"ca_pem":PEM}   ca: only when something is intercepted
 *    "sealed_for":ID?}                                             sealed_for: whose sealed values are in the policy, if not its own (a fork's)
 *   {"op":"forget","id":ID}                                        none
 *   {"op":"check","tag":2,"id":ID,"url":URL,"method":M}            {"op":"checked","tag":2,"verdict":"allow","rule":0,"reason":TEXT,
 *                                                                   "addresses":[...],"intercepted":false,"suggestion":TEXT?}
 *   {"op":"seal","tag":3,"id":ID,"value":TEXT}                     {"op":"sealed","tag":3,"value":SEALED}
 *   {"op":"secrets","tag":4}                                       {"op":"secrets","tag":4,"names":[...]}
 *   {"op":"post","tag":5,"policy":{...},"url":URL,                 {"op":"posted","tag":5,"status":S}
 *    "headers":{NAME:VALUE,...},"body":TEXT,"tenant":N?}           the machine's own request, judged by this policy; no
 *                                                                  redirect is followed, and only the status is read
 *   {"op":"ask","tag":6,"url":URL,"body":TEXT,"timeout_ms":N,      {"op":"asked","tag":6,"status":S,"body":TEXT}   of a service of the operator's, judged by no policy
 *    "headers":{NAME:VALUE,...}?}
 *   any that fails                                                 {"op":"failed","tag":T,"code":CODE,"message":TEXT}   code: err_code_name()
 *
 *   egress -> api, unasked
 *   {"op":"hello"}                     first on each socket
 *   {"op":"flow","id":ID,"flow":N,"at":US,"what":"open"|"close","proto":"tls"|"http"|"tcp","name":NAME?,"address":A,"port":P,"rule":R,
 *    "sent":BYTES,"received":BYTES,"us":DURATION,"intercepted":B,"error":TEXT?}        sent.. only with "close"
 *   {"op":"request","id":ID,"flow":N,"at":US,"method":M,"url":URL,"status":S,"rule":R,"injected":["NAME"...]}   intercepted and plain HTTP
 *   {"op":"denied","id":ID,"at":US,"proto":"dns"|"tls"|"http"|"tcp","name":NAME?,"address":A?,"port":P?,"method":M?,"path":P?,
 *    "rule":R,"reason":TEXT,"suggestion":TEXT?,"count":N}             count: how many alike since the last one told, at least 1
 *   {"op":"unresolved","id":ID,"at":US,"name":NAME,"reason":TEXT,"count":N}    an allowed name that could not be resolved; count: as above
 *   {"op":"secret","name":NAME,"what":"set"|"removed","uid":U}    a user of the machine changed it
 *   {"op":"misuse","id":ID,"at":US,"secret":NAME,"name":NAME,"port":P}    a sentinel went where it does not belong
 *
 * IDs, names and texts are bounded (policy/policy.h, base/id.h); times are microseconds since 1970. A SEALED text is
 * opaque to all but the vault.
 */
#pragma once

#include "base/id.h"

enum {
    EGRESS_VERSION = 1, /* of what coved says: one of another version is replaced by a coved that takes it over */
    EGRESS_MESSAGE_MAX = 256 * 1024,
    EGRESS_NET_FDS = 3,
};

enum egress_order_type {
    /* A sandbox's network; with three descriptors: tcp, dns_udp, dns_tcp, bound and listening in its namespace. A coved
     * that was started again says it again. */
    EGRESS_NET = 1,
    EGRESS_DROP, /* the sandbox is gone: end its streams, close its sockets */
    EGRESS_API,  /* with one descriptor: the socket to cove-api; replaces the one before */
};

struct egress_order {
    uint32_t type;
    char id[ID_SANDBOX_LEN + 1]; /* EGRESS_NET, EGRESS_DROP */
};
