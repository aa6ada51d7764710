/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Intrusive doubly linked list: the node is embedded in its owner, the list never owns memory.
 *
 *   struct list waiting = LIST_INIT(waiting);
 *   list_append(&waiting, &job->node);
 *   LIST_FOREACH(struct job, j, &waiting, node) { ... list_remove(&j->node) is allowed for j itself ... }
 */
#pragma once

#include "base/def.h"

struct list {
    struct list *next, *prev;
};

#define LIST_INIT(name)                                                                                                \
    {                                                                                                                  \
        &(name), &(name)                                                                                               \
    }

static inline void list_init(struct list *l)
{
    l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
    return l->next == l;
}

static inline void list_append(struct list *l, struct list *node)
{
    node->prev = l->prev;
    node->next = l;
    l->prev->next = node;
    l->prev = node;
}

static inline void list_prepend(struct list *l, struct list *node)
{
    list_append(l->next, node);
}

/* Afterwards the node is an empty list of its own, so removing twice is harmless. */
static inline void list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

#define LIST_FIRST(type, l, member) (list_empty(l) ? NULL : container_of((l)->next, type, member))

/* Two loops, because one can't declare variables of two types; while the body runs the outer one is set to end, for
 * `break`. */
#define LIST_FOREACH(type, var, l, member)                                                                             \
    for (struct list *var##_it_ = (l)->next, *var##_next_ = var##_it_->next, *var##_keep_ = NULL; var##_it_ != (l);    \
         var##_it_ = var##_next_, var##_next_ = var##_it_->next)                                                       \
        for (type *var = (var##_keep_ = var##_next_, var##_next_ = (l), container_of(var##_it_, type, member)); var;   \
             var = NULL, var##_next_ = var##_keep_)
