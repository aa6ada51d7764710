/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Java's trust store in its oldest format (JKS, version 2), which every JDK reads. Its digest is made with the password
 * that all of them use, "changeit".
 *
 *   struct buf b = BUF_INIT(max);
 *   size_t known = jks_begin(&b, old);
 *   jks_add_pem(&b, known, text, "name");
 *   if (jks_end(&b) < 0) ...
 */
#pragma once

#include "base/buf.h"

/* Begins a store with all that `old` holds, if that is one (its digest is not checked). Returns the length of this
 * known part. */
size_t jks_begin(struct buf *b, struct str old);
bool jks_is(struct str store);

/* Every certificate of PEM text that isn't in the known part. They are called <alias>-<n>; what can't be decoded is
 * left out. */
void jks_add_pem(struct buf *b, size_t known, struct str pem, const char *alias);

/* Makes it whole. -ENOBUFS: it is too long for b. */
int jks_end(struct buf *b) WARN_UNUSED;
