/* SPDX-License-Identifier: Apache-2.0 */
/*
 * STATE/tls as `cove domain` keeps it: server.pem (config/domain.h) and, where the certificate is our own, ca.pem and
 * bundle.pem for everybody and ca.key for root. Each file is replaced in one go. Blocks on the disk.
 */
#pragma once

#include "base/err.h"
#include "config/domain.h"
#include "http/tls/tls_cert.h"

/* 1 and what there is (borrowing *file), 0 there is none, -1. */
int domain_store_load(const char *state_dir, struct buf *file, struct domain *ret_domain, struct err *err) WARN_UNUSED;

/* A certificate of our own CA, which is made when there is none for this domain. */
int domain_store_make(const char *state_dir, const char *name, struct err *err) WARN_UNUSED;

/* Somebody else's, already checked. */
int domain_store_put(const char *state_dir, const char *name, struct str chain, struct str key,
                     struct err *err) WARN_UNUSED;

/* Keeps the CA: who trusts it need not do so again. 1 removed, 0 there was none, -1. */
int domain_store_remove(const char *state_dir, struct err *err) WARN_UNUSED;

char *domain_store_ca(const char *state_dir); /* the path of ca.pem; free with mem_free() */

/*
 * Writes bundle.pem anew, which has the authorities that this machine trusts and the CA: for programs that trust one
 * file and nothing else. Its path, to be freed with mem_free(); NULL: it can't be written, or the machine has no
 * authorities.
 */
char *domain_store_bundle(const char *state_dir);
