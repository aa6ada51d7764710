/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of images as people write them: [host[:port]/]path[:tag][@digest]. Without a host it is Docker Hub's, where a
 * path of one component lies below "library/"; without tag and digest it is the tag "latest".
 */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "image/registry/digest.h"

#define REFERENCE_HUB_SERVER "registry-1.docker.io"

enum { REFERENCE_HOST_MAX = 262, REFERENCE_PATH_MAX = 256, REFERENCE_TAG_MAX = 129 };

struct reference {
    /* lower case, with the port if one is given: "ghcr.io", "localhost:5000", "[::1]:5000" */
    char host[REFERENCE_HOST_MAX];
    char path[REFERENCE_PATH_MAX]; /* "library/ubuntu" */
    char tag[REFERENCE_TAG_MAX];   /* "" when only a digest was given */
    char digest[DIGEST_TEXT_MAX];  /* "" when none was */
};

int reference_parse(struct str text, struct reference *ret_ref, struct err *err) WARN_UNUSED;

/* The host that is really asked: Docker Hub's registry has another name than Docker Hub. */
const char *reference_server(const struct reference *r);

/*
 * "host[:port]" of a URL or reference in parts: name without brackets, port 0 when there is none. False: neither a host
 * name nor an address.
 */
bool reference_split_host(struct str text, char ret_name[static REFERENCE_HOST_MAX], uint16_t *ret_port);
