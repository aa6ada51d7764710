/* SPDX-License-Identifier: Apache-2.0 */
/* Every statement that runs more than once, by name; each is prepared at first use and kept. */
#pragma once

/* The kinds that are read through events_life, and what that index is over. */
#define LIFE_RANGE "kind >= 'sandbox.' AND kind < 'sandbox/'"
#define LIFE_KINDS                                                                                                     \
    "'sandbox.create','sandbox.failed','sandbox.ended','sandbox.timeout','sandbox.metadata','sandbox.paused',"         \
    "'sandbox.resumed','sandbox.snapshotted'"

enum sql {
    SQL_BEGIN,
    SQL_COMMIT,

    SQL_META_GET,
    SQL_META_PUT,
    SQL_META_DELETE,

    SQL_SANDBOX_INSERT,
    SQL_SANDBOX_STATE,
    SQL_SANDBOX_END_AT,
    SQL_SANDBOX_ENDED,
    SQL_SANDBOX_NETWORK,
    SQL_SANDBOX_EXTRA,
    SQL_SANDBOX_DELETE,
    SQL_SANDBOX_GET,
    SQL_SANDBOX_EACH_LIVE,
    SQL_SANDBOX_EACH_ENDED,
    SQL_SANDBOX_EACH_EXPIRED,
    SQL_SANDBOX_ENDED_CUT,

    SQL_HEAD_GET,
    SQL_HEAD_CREATE,
    SQL_HEAD_UPDATE,
    SQL_HEAD_REBASE,
    SQL_HEAD_DELETE,
    SQL_HEAD_EACH,
    SQL_EVENT_APPEND,
    SQL_EVENT_READ,
    SQL_EVENT_GET,
    SQL_EVENT_DELETE,
    SQL_EVENT_NTH,

    SQL_LIFE,
    SQL_LIFE_BACK,
    SQL_WEBHOOK_PUT,
    SQL_WEBHOOK_CURSOR,
    SQL_WEBHOOK_DELETE,
    SQL_WEBHOOK_EACH,

    SQL_FEED_PUT,
    SQL_FEED_GET,
    SQL_FEED_FIRST,
    SQL_FEED_LAST,
    SQL_FEED_NTH,
    SQL_FEED_SWEEP,
    SQL_FEED_HEADS,
    SQL_FEED_EVENTS,

    SQL_ARTEFACT_GET,
    SQL_ARTEFACT_PUT,
    SQL_ARTEFACT_DELETE,
    SQL_ARTEFACT_SUM,
    SQL_ARTEFACT_SUM_ALL,
    SQL_ARTEFACT_OLD,
    SQL_ARTEFACT_HAS,
    SQL_ARTEFACT_OF_DIGEST,

    SQL_TEMPLATE_PUT,
    SQL_TEMPLATE_DELETE,
    SQL_TEMPLATE_EACH,
    SQL_BUILD_PUT,
    SQL_BUILD_DELETE,
    SQL_BUILD_EACH,
    SQL_TAG_PUT,
    SQL_TAG_DELETE,
    SQL_TAG_EACH,
    SQL_USE_PUT,
    SQL_USE_DELETE,
    SQL_USE_EACH,
    SQL_LOG_APPEND,
    SQL_LOG_READ,
    SQL_LOG_DELETE,
    SQL_CACHE_PUT,
    SQL_CACHE_DELETE,
    SQL_CACHE_EACH,

    SQL_VOLUME_INSERT,
    SQL_VOLUME_DELETE,
    SQL_VOLUME_EACH,
    SQL_VOLUME_LOG_EXPIRED,
    SQL_SPARES_PUT,
    SQL_SPARES_EACH,

    SQL_TENANT_INSERT,
    SQL_TENANT_DELETE,
    SQL_TENANT_DELETE_KEYS,
    SQL_TENANT_DELETE_LIMITS,
    SQL_TENANT_EACH,
    SQL_LIMIT_PUT,
    SQL_LIMIT_EACH,
    SQL_KEY_PUT,
    SQL_KEY_DELETE,
    SQL_KEY_EACH,
    SQL_OWNER_PUT,
    SQL_OWNER_GET,
    SQL_OWNER_DELETE,

    SQL_MAX,
};

extern const char *const sql_texts[SQL_MAX];
