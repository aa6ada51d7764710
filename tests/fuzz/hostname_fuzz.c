/* SPDX-License-Identifier: Apache-2.0 */
/* Host names and paths of requests: what has a normal form keeps it, and nothing is an address and a name. */
#include "base/mem.h"
#include "policy/hostname.h"
#include "policy/netaddr.h"
#include "policy/request_path.h"

#include <arpa/inet.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_name(struct str text)
{
    char name[HOSTNAME_MAX + 1], again[HOSTNAME_MAX + 1], pattern[HOSTNAME_MAX + 3], same[HOSTNAME_MAX + 3];
    struct in_addr guessed;
    struct netaddr a;

    if (hostname_normalise(text, name)) {
        if (!hostname_normalise(str_of(name), again) || strcmp(name, again) != 0)
            abort();
        if (netaddr_parse(text, &a) || inet_aton(name, &guessed))
            abort();
        if (!hostname_pattern_normalise(text, pattern) || strcmp(name, pattern) != 0)
            abort();
    }
    if (hostname_pattern_normalise(text, pattern) &&
        (!hostname_pattern_normalise(str_of(pattern), same) || strcmp(pattern, same) != 0))
        abort();
}

static bool has_dot_segment(struct str path)
{
    return memmem(path.p, path.n, "/../", 4) || memmem(path.p, path.n, "/./", 3) || str_ends(path, STR("/..")) ||
           str_ends(path, STR("/."));
}

static void check_path(struct str text)
{
    AUTO_ARENA struct arena arena = ARENA_INIT;
    AUTO_FREE struct request_path *path = mem_new(struct request_path), *again = mem_new(struct request_path);
    struct path_pattern pattern, same;

    if (request_path_read(text, path)) {
        if (path->n != 1 && path->n != REQUEST_PATH_READINGS)
            abort();
        for (size_t i = 0; i < path->n; i++) {
            struct str reading = path->readings[i];

            if (reading.n == 0 || reading.p[0] != '/' || memchr(reading.p, '?', reading.n) || has_dot_segment(reading))
                abort();
            if (!request_path_read(reading, again) || !str_eq(again->readings[0], reading))
                abort();
        }
    }
    if (path_pattern_parse(text, &arena, &pattern)) {
        if (!path_pattern_parse(str_of(pattern.text), &arena, &same) || strcmp(pattern.text, same.text) != 0)
            abort();
        if (!request_path_read(str_n(text.p, text.n - pattern.is_prefix), again) ||
            !path_pattern_matches_all(&pattern, again) || !path_pattern_matches_any(&pattern, again))
            abort();
        if (path_pattern_matches_all(&pattern, path) && !path_pattern_matches_any(&pattern, path))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = str_n(data, size);

    check_name(text);
    check_path(text);
    return 0;
}
