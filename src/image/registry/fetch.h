/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The half that fetches: reads the request, gets the image's documents and layers from a registry or an archive,
 * verifies every digest and size, unpacks what is packed, and hands plain tars to the other half. It tells the client
 * how it goes.
 */
#pragma once

#include "base/clock.h"
#include "image/registry/http.h"

struct fetch_config {
    int job_fd, data_fd, notes_fd;
    int spool_fd; /* an empty file */
    uint64_t max_bytes;
    usec_t until;
    unsigned stall_s;
    struct str ca;
    struct http *http;
};

/* Returns the exit code: 0 when all was unpacked, verified and told; 1 when the client was told of an error. */
int fetch_run(const struct fetch_config *config);
