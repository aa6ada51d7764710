/* SPDX-License-Identifier: Apache-2.0 */
/* Every statement that runs more than once, by name; each is prepared at first use and kept. */
#pragma once

/* The kinds that are read through events_life, and what that index is over. */
#define LIFE_RANGE "kind >= 'sandbox.' AND kind < 'sandbox/'"
#define LIFE_KINDS                                                                                                     \
    "'sandbox.create','sandbox.failed','sandbox.ended','sandbox.timeout','sandbox.metadata','sandbox.paused',"         \
    "'sandbox.resumed','sandbox.snapshotted'"

/* Behind its id, each by the name that it has in struct store_sandbox. */
#define SANDBOX_ROW(X)                                                                                                 \
    X(state)                                                                                                           \
    X(tier)                                                                                                            \
    X(template_id)                                                                                                     \
    X(template_alias)                                                                                                  \
    X(layer_digest)                                                                                                    \
    X(created_at)                                                                                                      \
    X(started_at)                                                                                                      \
    X(end_at)                                                                                                          \
    X(timeout)                                                                                                         \
    X(cpu_milli)                                                                                                       \
    X(memory_bytes)                                                                                                    \
    X(disk_bytes)                                                                                                      \
    X(access_token)                                                                                                    \
    X(traffic_token)                                                                                                   \
    X(on_timeout)                                                                                                      \
    X(auto_resume)                                                                                                     \
    X(secure)                                                                                                          \
    X(allow_internet)                                                                                                  \
    X(metadata)                                                                                                        \
    X(envs)                                                                                                            \
    X(network)                                                                                                         \
    X(extra)                                                                                                           \
    X(ended_at)                                                                                                        \
    X(end_cause)                                                                                                       \
    X(tenant)
#define SQL_COLUMN(name) ", " #name
#define SQL_PARAMETER(name) ",?"
#define SANDBOX_COLUMNS "id" SANDBOX_ROW(SQL_COLUMN)

#define BUILD_COLUMNS                                                                                                  \
    "id, template, snapshot, status, layer, source, cpu_milli, memory_bytes, disk_bytes, size_bytes, created_at, "     \
    "started_at, finished_at, start_cmd, ready_cmd, workdir, user, envs, reason, reason_step, tier, memory, image"

#define KEY_COLUMNS "id, tenant, name, scope, sandbox, hash, old_hash, old_until, created_at, expires_at"

/* Neither those that Cove makes for itself, nor the making of one that is somebody's by now. */
#define LIFE_SELECT                                                                                                    \
    "SELECT e.cursor, e.time, e.kind, e.data, e.hash, h.sandbox, s.tenant, s.template_id, s.metadata, s.started_at, "  \
    "s.cpu_milli, s.memory_bytes FROM events e INDEXED BY events_life JOIN event_heads h ON h.log = e.log "            \
    "JOIN sandboxes s ON s.id = h.sandbox WHERE " LIFE_RANGE " AND kind IN (" LIFE_KINDS                               \
    ") AND e.cursor > ?1 AND e.cursor <= ?2 "                                                                          \
    "AND (?3 OR s.tenant = ?4) AND (?5 = '' OR h.sandbox = ?5) AND s.extra NOT LIKE '%\"hidden\":true%' "              \
    "AND NOT (e.kind = 'sandbox.create' AND e.data LIKE '%\"hidden\":true%') "
#define EVENT_COLUMNS "seq, time, kind, source, grade, actor, cause, data, hash"

#define SQL_STATEMENTS(X)                                                                                              \
    X(SQL_BEGIN, "BEGIN IMMEDIATE")                                                                                    \
    X(SQL_COMMIT, "COMMIT")                                                                                            \
    X(SQL_META_GET, "SELECT value FROM meta WHERE key = ?1")                                                           \
    X(SQL_META_PUT, "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = ?2")        \
    X(SQL_META_DELETE, "DELETE FROM meta WHERE key = ?1")                                                              \
    X(SQL_SANDBOX_INSERT, "INSERT INTO sandboxes (" SANDBOX_COLUMNS ") VALUES (?" SANDBOX_ROW(SQL_PARAMETER) ")")      \
    X(SQL_SANDBOX_STATE, "UPDATE sandboxes SET state = ?2 WHERE id = ?1")                                              \
    X(SQL_SANDBOX_END_AT, "UPDATE sandboxes SET end_at = ?2, timeout = ?3 WHERE id = ?1")                              \
    X(SQL_SANDBOX_ENDED, "UPDATE sandboxes SET state = ?2, ended_at = ?3, end_cause = ?4 WHERE id = ?1")               \
    X(SQL_SANDBOX_NETWORK, "UPDATE sandboxes SET network = ?2 WHERE id = ?1")                                          \
    X(SQL_SANDBOX_EXTRA, "UPDATE sandboxes SET extra = ?2 WHERE id = ?1")                                              \
    X(SQL_SANDBOX_DELETE, "DELETE FROM sandboxes WHERE id = ?1")                                                       \
    X(SQL_SANDBOX_GET, "SELECT " SANDBOX_COLUMNS " FROM sandboxes WHERE id = ?1")                                      \
    X(SQL_SANDBOX_EACH_LIVE, "SELECT " SANDBOX_COLUMNS " FROM sandboxes WHERE ended_at = 0 ORDER BY created_at, id")   \
    X(SQL_SANDBOX_EACH_ENDED, "SELECT " SANDBOX_COLUMNS " FROM sandboxes WHERE ended_at > 0 AND "                      \
                              "(?1 OR tenant = ?2) ORDER BY ended_at DESC LIMIT ?3")                                   \
    X(SQL_SANDBOX_EACH_EXPIRED, "SELECT " SANDBOX_COLUMNS " FROM sandboxes WHERE ended_at > 0 AND ended_at < ?1 "      \
                                "ORDER BY ended_at LIMIT ?2")                                                          \
    X(SQL_SANDBOX_EACH_SURPLUS,                                                                                        \
      "SELECT " SANDBOX_COLUMNS " FROM sandboxes WHERE ended_at > 0 AND "                                              \
      "(SELECT ended_at FROM sandboxes WHERE ended_at > 0 ORDER BY ended_at DESC LIMIT 1 OFFSET ?1) IS NOT NULL AND "  \
      "tenant = (SELECT tenant FROM sandboxes WHERE ended_at > 0 GROUP BY tenant ORDER BY count(*) DESC LIMIT 1) "     \
      "ORDER BY ended_at LIMIT 1")                                                                                     \
    X(SQL_HEAD_GET,                                                                                                    \
      "SELECT log, last_seq, last_hash, base_seq, base_hash, last_cursor FROM event_heads WHERE sandbox = ?1")         \
    X(SQL_HEAD_CREATE, "INSERT INTO event_heads (sandbox, last_seq, last_hash, base_seq, base_hash) "                  \
                       "VALUES (?1, ?2, ?3, ?2, ?3)")                                                                  \
    X(SQL_HEAD_UPDATE, "UPDATE event_heads SET last_seq = ?2, last_hash = ?3, last_cursor = ?4 WHERE log = ?1")        \
    X(SQL_HEAD_REBASE, "UPDATE event_heads SET base_seq = ?2, base_hash = ?3 WHERE log = ?1")                          \
    X(SQL_HEAD_DELETE, "DELETE FROM event_heads WHERE log = ?1")                                                       \
    X(SQL_HEAD_EACH, "SELECT sandbox, last_seq, last_hash FROM event_heads ORDER BY sandbox")                          \
    X(SQL_EVENT_APPEND, "INSERT INTO events (log, " EVENT_COLUMNS ", cursor) VALUES (?,?,?,?,?,?,?,?,?,?,?)")          \
    X(SQL_EVENT_READ,                                                                                                  \
      "SELECT " EVENT_COLUMNS " FROM events WHERE log = ?1 AND seq BETWEEN ?2 AND ?3 ORDER BY seq LIMIT ?4")           \
    X(SQL_EVENT_GET,                                                                                                   \
      "SELECT " EVENT_COLUMNS " FROM events WHERE log = ?1 AND seq >= ?2 AND seq <= ?3 ORDER BY seq LIMIT 1")          \
    X(SQL_EVENT_DELETE, "DELETE FROM events WHERE log = ?1 AND seq < ?2")                                              \
    X(SQL_EVENT_NTH, "SELECT max(seq) FROM (SELECT seq FROM events WHERE log = ?1 ORDER BY seq LIMIT ?2)")             \
    X(SQL_LIFE, LIFE_SELECT "ORDER BY e.cursor")                                                                       \
    X(SQL_LIFE_BACK, LIFE_SELECT "ORDER BY e.cursor DESC")                                                             \
    X(SQL_WEBHOOK_PUT, "INSERT INTO webhooks (id, tenant, cursor, config) VALUES (?1, ?2, ?3, ?4) "                    \
                       "ON CONFLICT (id) DO UPDATE SET cursor = ?3, config = ?4")                                      \
    X(SQL_WEBHOOK_CURSOR, "UPDATE webhooks SET cursor = ?2 WHERE id = ?1")                                             \
    X(SQL_WEBHOOK_DELETE, "DELETE FROM webhooks WHERE id = ?1")                                                        \
    X(SQL_WEBHOOK_EACH, "SELECT id, tenant, cursor, config FROM webhooks ORDER BY id")                                 \
    X(SQL_FEED_PUT, "INSERT INTO feed (cursor, log, seq, n) VALUES (?,?,?,?)")                                         \
    /* The run that holds a cursor is the last one that begins at or before it; else the next one is meant. */         \
    X(SQL_FEED_GET,                                                                                                    \
      "SELECT f.cursor, f.log, f.seq, f.n, h.sandbox FROM feed f LEFT JOIN event_heads h ON h.log = f.log "            \
      "WHERE f.cursor >= coalesce((SELECT max(cursor) FROM feed WHERE cursor <= ?1), 0) "                              \
      "ORDER BY f.cursor LIMIT 2")                                                                                     \
    X(SQL_FEED_FIRST, "SELECT min(cursor) FROM feed")                                                                  \
    X(SQL_FEED_LAST, "SELECT cursor + n - 1 FROM feed ORDER BY cursor DESC LIMIT 1")                                   \
    X(SQL_FEED_NTH, "SELECT max(cursor) FROM (SELECT cursor FROM feed WHERE cursor > ?1 ORDER BY cursor LIMIT ?2)")    \
    X(SQL_FEED_SWEEP,                                                                                                  \
      "DELETE FROM feed WHERE cursor IN (SELECT f.cursor FROM feed f LEFT JOIN event_heads h ON h.log = f.log "        \
      "WHERE f.cursor > ?1 AND f.cursor <= ?2 AND f.cursor < (SELECT max(cursor) FROM feed) "                          \
      "AND (h.log IS NULL OR h.base_seq >= f.seq + f.n - 1))")                                                         \
    X(SQL_FEED_HEADS, "SELECT log, sandbox, last_seq, last_cursor FROM event_heads WHERE last_cursor > ?1")            \
    X(SQL_FEED_EVENTS, "SELECT seq, cursor FROM events WHERE log = ?1 AND seq <= ?2 ORDER BY seq DESC")                \
    X(SQL_ARTEFACT_GET, "SELECT bytes, dropped, digest FROM artefacts WHERE sandbox = ?1 AND seq = ?2 AND part = ?3")  \
    X(SQL_ARTEFACT_PUT,                                                                                                \
      "REPLACE INTO artefacts (sandbox, seq, part, bytes, dropped, digest, until) VALUES (?,?,?,?,?,?,?)")             \
    X(SQL_ARTEFACT_DELETE, "DELETE FROM artefacts WHERE sandbox = ?1 AND seq = ?2 AND part = ?3")                      \
    X(SQL_ARTEFACT_SUM, "SELECT coalesce(sum(bytes), 0) FROM artefacts WHERE sandbox = ?1")                            \
    X(SQL_ARTEFACT_SUM_ALL, "SELECT coalesce(sum(bytes), 0) FROM artefacts")                                           \
    /* UINT64_MAX is stored as the greatest integer: `until` of what is still written, `before` of who wants all. */   \
    X(SQL_ARTEFACT_OLD, "SELECT seq, part, bytes, digest FROM artefacts WHERE sandbox = ?1 AND "                       \
                        "(until < ?2 OR ?2 = 9223372036854775807) LIMIT 1")                                            \
    X(SQL_ARTEFACT_HAS, "SELECT 1 FROM artefacts WHERE digest = ?1 LIMIT 1")                                           \
    X(SQL_ARTEFACT_OF_DIGEST, "SELECT seq, part FROM artefacts WHERE digest = ?1 AND sandbox = ?2 LIMIT 1")            \
    X(SQL_TEMPLATE_PUT,                                                                                                \
      "REPLACE INTO templates (id, name, public, created_at, updated_at, tenant) VALUES (?,?,?,?,?,?)")                \
    X(SQL_TEMPLATE_DELETE, "DELETE FROM templates WHERE id = ?1")                                                      \
    X(SQL_TEMPLATE_EACH, "SELECT id, name, public, created_at, updated_at, tenant FROM templates ORDER BY id")         \
    X(SQL_BUILD_PUT,                                                                                                   \
      "REPLACE INTO template_builds (" BUILD_COLUMNS ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")       \
    X(SQL_BUILD_DELETE, "DELETE FROM template_builds WHERE id = ?1")                                                   \
    X(SQL_BUILD_EACH, "SELECT " BUILD_COLUMNS ", (SELECT coalesce(max(seq), 0) FROM template_logs WHERE build = id) "  \
                      "FROM template_builds ORDER BY created_at, id")                                                  \
    X(SQL_TAG_PUT, "REPLACE INTO template_tags (template, tag, build, created_at) VALUES (?,?,?,?)")                   \
    X(SQL_TAG_DELETE, "DELETE FROM template_tags WHERE template = ?1 AND tag = ?2")                                    \
    X(SQL_TAG_EACH, "SELECT template, tag, build, created_at FROM template_tags ORDER BY template, created_at, tag")   \
    X(SQL_USE_PUT, "REPLACE INTO template_uses (template, count, last_at) VALUES (?,?,?)")                             \
    X(SQL_USE_DELETE, "DELETE FROM template_uses WHERE template = ?1")                                                 \
    X(SQL_USE_EACH, "SELECT template, count, last_at FROM template_uses")                                              \
    X(SQL_LOG_APPEND, "INSERT INTO template_logs (build, seq, at, level, step, message) VALUES (?,?,?,?,?,?)")         \
    X(SQL_LOG_READ, "SELECT seq, at, level, step, message FROM template_logs WHERE build = ?1 AND seq > ?2 AND "       \
                    "level >= ?3 ORDER BY seq LIMIT ?4 OFFSET ?5")                                                     \
    X(SQL_LOG_DELETE, "DELETE FROM template_logs WHERE build = ?1")                                                    \
    X(SQL_CACHE_PUT, "REPLACE INTO build_cache (key, layer, result, bytes, made_at, used_at) VALUES (?,?,?,?,?,?)")    \
    X(SQL_CACHE_DELETE, "DELETE FROM build_cache WHERE key = ?1")                                                      \
    X(SQL_CACHE_EACH, "SELECT key, layer, result, bytes, made_at, used_at FROM build_cache")                           \
    X(SQL_VOLUME_INSERT,                                                                                               \
      "INSERT INTO volumes (id, name, token, limit_bytes, created_at, tenant) VALUES (?,?,?,?,?,?)")                   \
    X(SQL_VOLUME_DELETE, "DELETE FROM volumes WHERE id = ?1")                                                          \
    X(SQL_VOLUME_LOG_EXPIRED,                                                                                          \
      "SELECT sandbox FROM event_heads h WHERE sandbox >= 'vol-' AND sandbox < 'vol.' AND NOT EXISTS "                 \
      "(SELECT 1 FROM volumes WHERE id = h.sandbox) AND COALESCE((SELECT time FROM events e WHERE e.log = h.log AND "  \
      "e.seq = h.last_seq), 0) < ?1 LIMIT 1")                                                                          \
    X(SQL_VOLUME_EACH, "SELECT id, name, token, limit_bytes, created_at, tenant FROM volumes ORDER BY name, tenant")   \
    X(SQL_SPARES_PUT, "REPLACE INTO template_spares (template, count, most) VALUES (?,?,?)")                           \
    X(SQL_SPARES_EACH, "SELECT template, count, most FROM template_spares")                                            \
    X(SQL_TENANT_INSERT, "INSERT INTO tenants (name, created_at) VALUES (?,?)")                                        \
    X(SQL_TENANT_DELETE, "DELETE FROM tenants WHERE tenant = ?1")                                                      \
    X(SQL_TENANT_DELETE_KEYS, "DELETE FROM keys WHERE tenant = ?1")                                                    \
    X(SQL_TENANT_DELETE_LIMITS, "DELETE FROM tenant_limits WHERE tenant = ?1")                                         \
    X(SQL_TENANT_EACH, "SELECT tenant, name, created_at FROM tenants ORDER BY name")                                   \
    X(SQL_LIMIT_PUT, "REPLACE INTO tenant_limits (tenant, what, most) VALUES (?,?,?)")                                 \
    X(SQL_LIMIT_EACH, "SELECT tenant, what, most FROM tenant_limits")                                                  \
    X(SQL_KEY_PUT, "REPLACE INTO keys (" KEY_COLUMNS ") VALUES (?,?,?,?,?,?,?,?,?,?)")                                 \
    X(SQL_KEY_DELETE, "DELETE FROM keys WHERE id = ?1")                                                                \
    X(SQL_KEY_EACH, "SELECT " KEY_COLUMNS " FROM keys")                                                                \
    X(SQL_OWNER_PUT, "REPLACE INTO volume_owners (volume, tenant) VALUES (?,?)")                                       \
    X(SQL_OWNER_GET, "SELECT tenant FROM volume_owners WHERE volume = ?1")                                             \
    X(SQL_OWNER_DELETE, "DELETE FROM volume_owners WHERE volume = ?1")

#define SQL_NAME(name, text) name,
enum sql { SQL_STATEMENTS(SQL_NAME) SQL_MAX };

extern const char *const sql_texts[SQL_MAX];
