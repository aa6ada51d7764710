/* SPDX-License-Identifier: Apache-2.0 */
/*
 * STATE/tls/server.pem: the domain that sandboxes are reached by from outside, and what proves it. `cove domain` writes
 * the file, coved reads it. One file, so that a domain never meets another one's certificate:
 *
 *   domain: sandbox.example.org
 *   source: own                       own: signed by STATE/tls/ca.pem; given: somebody else's
 *   -----BEGIN PRIVATE KEY-----       the key, then the certificate, then what leads from it to a root
 */
#pragma once

#include "base/buf.h"

#define DOMAIN_DIR "tls" /* below the state directory */
#define DOMAIN_FILE DOMAIN_DIR "/server.pem"

enum { DOMAIN_NAME_MAX = 200, DOMAIN_FILE_MAX = 48 * 1024 };

/* Borrows the text. */
struct domain {
    struct str name; /* p NULL: none */
    struct str pem;
    bool is_own;
};

/* A host name in lower case with two labels or more, which clients take *.<name> of: none of them takes "*.org". */
bool domain_is_name(struct str s);

int domain_parse(struct str text, struct domain *ret_domain) WARN_UNUSED; /* -EINVAL: it is not such a file */
int domain_format(const struct domain *domain, struct buf *to) WARN_UNUSED;
