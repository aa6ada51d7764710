/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What cove-image is told and tells: one job, over one stream socket whose other end its client holds. Lines of JSON,
 * each ended by '\n'.
 *
 * The client sends one line, of at most JOB_REQUEST_MAX bytes, with the first byte of which the descriptor of an
 * archive travels (SCM_RIGHTS):
 *
 *   {"image":"docker.io/library/ubuntu:22.04",      as people write it; "ubuntu" and "ghcr.io/a/b@sha256:..." will do
 *    "platform":"linux/amd64",                      optional, os/architecture[/variant]; absent: this machine's
 *    "auth":{"username":"u","password":"p"},        optional; or {"token":"..."}, a bearer token for the registry
 *    "insecure":["registry.local:5000"]}            optional; hosts that may have private addresses and are spoken to without TLS.
 *                                                   "https://host[:port]" allows the addresses alone and keeps TLS. No
 *                                                   port: any
 *   {"archive":true,                                an OCI layout or a docker-archive as a tar, plain, gzip or zstd; a file or a pipe
 *    "platform":"linux/amd64",                      optional
 *    "ref":"name:tag"}                              optional: which one of several images in it
 *
 * and is told, at most every 200 ms and whenever the phase or the layer changes,
 *
 *   {"phase":"resolve"}                                              the manifest is asked for
 *   {"phase":"pull","layer":"sha256:..","bytes":n,"of":m,            of the layer's bytes as they are stored
 *    "index":i,"layers":k,"unpacked":u}                              layer i of k, from 0; u: bytes of the image unpacked so far
 *   {"phase":"unpack","layer":"sha256:..","index":i,"layers":k,      a layer is complete and verified
 *    "unpacked":u,"entries":e}
 *   {"warning":"dev/sda: devices are left out"}                      at most JOB_WARNINGS_MAX of these
 *
 * and at the end exactly one of
 *
 *   {"ok":true,"digest":"sha256:..","config":{"env":["A=b"],"cmd":[..],"entrypoint":[..],"workdir":"","user":""},
 *    "bytes":n,"entries":n}                         digest: of the platform's manifest (docker-archive: of the image's configuration);
 *                                                   bytes: of the layers, uncompressed; config: as the image says,
 *                                                   empty where it doesn't
 *   {"error":{"code":"..","message":".."}}          code: one of JOB_CODES; the message says what to do next
 *
 * A line from cove-image is at most JOB_LINE_MAX bytes long. The last line may be missing when cove-image is killed:
 * its exit code is what counts, 0 only when all was unpacked, verified and told. The client closes its end to cancel
 * the job.
 */
#pragma once

#include "base/def.h"

enum {
    JOB_REQUEST_MAX = 64 * 1024,
    JOB_LINE_MAX = 256 * 1024,
    JOB_WARNINGS_MAX = 50,
    JOB_PROGRESS_MS = 200,
};

/*
 * code              what happened                                                       the service's own code for it
 * not_found         no such image, tag, platform                                        ERR_NOT_FOUND
 * unauthenticated   the registry wants credentials, or did not take those               ERR_UNAUTHENTICATED
 * denied            the registry, or an address that is not allowed, says no            ERR_PERMISSION_DENIED
 * invalid           the request, or the image: lies about a digest or size, bad layers  ERR_INVALID_ARGUMENT
 * unsupported       a media type, schema or feature that is not read                    ERR_UNIMPLEMENTED
 * too_large         more bytes, entries or layers than allowed                          ERR_OUT_OF_RANGE
 * full              no room on disk                                                     ERR_RESOURCE_EXHAUSTED
 * unavailable       no connection, no answer, answers that end early                    ERR_UNAVAILABLE
 * timeout           the whole job took too long                                         ERR_DEADLINE_EXCEEDED
 * canceled          the client closed its end                                           ERR_CANCELED
 * internal          our fault, or the machine's                                         ERR_INTERNAL
 */
#define JOB_CODES                                                                                                      \
    "not_found", "unauthenticated", "denied", "invalid", "unsupported", "too_large", "full", "unavailable", "timeout", \
        "canceled", "internal"

/*
 * How coved starts it, as root, with nothing else open:
 *
 *   cove-image --root-fd N --job-fd N --uid U --ids-base B [--max-bytes N] [--max-entries N] [--timeout-s N]
 *
 *   --root-fd    an empty directory on a file system that idmapped mounts work on; filled with the image's files, ownership unshifted
 *   --job-fd     the socket above
 *   --uid        a host id that no account has, for the half that fetches (group too)
 *   --ids-base   the first of 65,536 host ids that nothing else has, for the half that unpacks
 *   --max-bytes, --max-entries    of the unpacked image; absent: JOB_BYTES_DEFAULT, JOB_ENTRIES_DEFAULT
 *   --timeout-s  for everything; absent: JOB_TIMEOUT_S_DEFAULT
 *   --stall-s    a connection that brings less than 1 KiB/s for so long is given up and tried again; absent: 30
 *   --ca FILE    certificates of trusted authorities; absent: /etc/ssl/certs/ca-certificates.crt
 *
 * When it exits with anything but 0 the directory holds rubbish: throw it away. It ends with its parent, and all of it
 * with it.
 */
#define JOB_BYTES_DEFAULT (UINT64_C(32) << 30)
enum { JOB_ENTRIES_DEFAULT = 1000000, JOB_TIMEOUT_S_DEFAULT = 3600, JOB_STALL_S_DEFAULT = 30 };
