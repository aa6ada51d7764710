/* SPDX-License-Identifier: Apache-2.0 */
/* Names of images, hosts, URLs and challenges: what is taken is what may stand in a URL and a header, and names itself
 * again. */
#include "base/mem.h"
#include "image/registry/challenge.h"
#include "image/registry/http.h"
#include "image/registry/reference.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_printable(const char *text, size_t room)
{
    if (!memchr(text, 0, room))
        abort();
    for (; *text; text++)
        if (*text <= ' ' || *text > '~' || strchr("\"%?#\\", *text))
            abort();
}

static void check_reference(const struct reference *r)
{
    struct reference again;
    struct err err;
    check_printable(r->host, sizeof(r->host));
    check_printable(r->path, sizeof(r->path));
    check_printable(r->tag, sizeof(r->tag));
    if (strstr(r->path, "..") || strstr(r->path, "//") || (!r->tag[0] && !r->digest[0]))
        abort();
    AUTO_FREE char *text =
        mem_printf("%s/%s%s%s%s%s", r->host, r->path, r->tag[0] ? ":" : "", r->tag, r->digest[0] ? "@" : "", r->digest);
    if (reference_parse(str_of(text), &again, &err) < 0 || memcmp(again.host, r->host, strlen(r->host) + 1) != 0 ||
        strcmp(again.path, r->path) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = str_n(data, size);
    struct reference r;
    struct challenge c;
    struct http_hosts hosts = {.n = 0};
    struct err err;
    char host[REFERENCE_HOST_MAX];
    if (reference_parse(text, &r, &err) == 0)
        check_reference(&r);
    challenge_parse(text, &c);
    if (!memchr(c.realm, 0, sizeof(c.realm)) || (c.scheme == CHALLENGE_BEARER && !c.realm[0]))
        abort();
    (void)http_hosts_add(&hosts, text);
    AUTO_FREE char *url = mem_strndup(text.p ? text.p : "", text.n);
    if (http_url_host(url, host))
        check_printable(host, sizeof(host));
    return 0;
}
