/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The documents that describe an image: OCI indexes and Docker's manifest lists, of which one entry is chosen; OCI and
 * Docker (schema 2) manifests; the image's configuration. All come from strangers: each is bounded, and nothing in it
 * is believed but digests that are verified later.
 *
 * A document that is both an index and a manifest, or whose own media type is not the one it was sent as, is refused:
 * which of the two a reader takes must not be for its author to play with.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "image/registry/digest.h"

enum {
    MANIFEST_BYTES_MAX = 4 << 20, /* of each document */
    MANIFEST_LAYERS_MAX = 512,
    MANIFEST_ENTRIES_MAX = 1024, /* of an index */
    PLATFORM_PART_MAX = 32,
    REF_NAME_MAX = 512,
};

struct platform {
    char os[PLATFORM_PART_MAX], arch[PLATFORM_PART_MAX], variant[PLATFORM_PART_MAX]; /* variant: "" when any will do */
};

int platform_parse(struct str text, struct platform *ret_platform, struct err *err) WARN_UNUSED;
void platform_of_machine(struct platform *ret_platform);

enum packing { PACKING_NONE, PACKING_GZIP, PACKING_ZSTD, PACKING_ANY }; /* ANY: as its first bytes say */

struct image_blob {
    char digest[DIGEST_TEXT_MAX]; /* of the bytes as they are stored; "" in a docker-archive, which has none */
    char name[REF_NAME_MAX];      /* docker-archive: of the file in it */
    uint64_t size;                /* UINT64_MAX: unknown */
    enum packing packing;
};

struct manifest {
    bool is_index;
    struct image_blob config; /* or, of an index, the chosen manifest */
    size_t n_layers;
    struct image_blob *layers; /* owned; bottom first */
};

/*
 * media_type: as a server says, without parameters; NULL where nobody did. ref: of the index of an archive, the name of
 * the image that is meant, or "" when there must be only one; else NULL, and the first of those that suit best is
 * taken.
 */
int manifest_parse(struct str text, const char *media_type, const struct platform *want, const char *ref,
                   struct manifest *ret_manifest, struct err *err) WARN_UNUSED;
void manifest_fini(struct manifest *m);

/* The docker-archive's list of images. ref: or "", as above. */
int manifest_parse_docker(struct str text, const char *ref, struct manifest *ret_manifest, struct err *err) WARN_UNUSED;

struct image_config {
    size_t n_layers;
    char (*diff_ids)[DIGEST_TEXT_MAX]; /* owned: digests of the layers' uncompressed bytes */
    struct platform platform;
    struct buf json; /* {"env":[..],..}, for job.h */
};

int config_parse(struct str text, struct image_config *ret_config, struct err *err) WARN_UNUSED;
void config_fini(struct image_config *c);

/* Is this image for the platform that was asked for? */
bool platform_matches(const struct platform *want, const struct platform *has);

extern const char manifest_accept[]; /* the media types that are read, for a registry */
