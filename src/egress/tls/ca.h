/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CA of one sandbox, which nobody else trusts: an EC P-256 key and its self-signed certificate, which can sign
 * certificates of hosts (no further CA, no addresses). Leaves are made on demand, one per name, live 48 hours and are
 * kept, CA_LEAVES_MAX of them.
 */
#pragma once

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"

enum { CA_LEAVES_MAX = 256, CA_EXPORT_MAX = 4096, CA_PEM_MAX = 2048 };

struct ca;

/* What a server shows. Lives until the next call for that CA; side_tls_server() keeps what it needs. */
struct ca_leaf {
    const char *name;
    struct x509_st *certificate;
    struct evp_pkey_st *key;
};

int ca_new(const char *sandbox_id, struct ca **ret_ca, struct err *err) WARN_UNUSED;
void ca_free(struct ca *ca);

/*
 * Key and certificate as bytes, for the vault to seal: wipe them. Import refuses what is not whole or does not belong
 * together (ERR_INVALID_ARGUMENT), and what has expired (ERR_FAILED_PRECONDITION).
 */
int ca_export(const struct ca *ca, struct buf *to, struct err *err) WARN_UNUSED;
int ca_import(struct str bytes, struct ca **ret_ca, struct err *err) WARN_UNUSED;

/* Appends the certificate as PEM: what the sandbox is made to trust. */
int ca_pem(const struct ca *ca, struct buf *to, struct err *err) WARN_UNUSED;

/* name: normalised (policy/hostname.h). */
int ca_leaf(struct ca *ca, const char *name, const struct ca_leaf **ret_leaf, struct err *err) WARN_UNUSED;

void ca_set_clock(struct ca *ca, usec_t (*now)(void)); /* for tests: instead of clock_real() */
