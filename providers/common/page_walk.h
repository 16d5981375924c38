/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of a list of pages, the same for every cloud. A cloud decides how many pages there are and how long each
 * one takes, and until its list has ended nobody knows what is billed there. A list past its limit counts as not read.
 * Pure but for the clock; one thread at a time for one walk. */
#ifndef GP_COMMON_PAGE_WALK_H
#define GP_COMMON_PAGE_WALK_H

#include "base/error.h"
#include "base/json.h"
#include "base/vec.h"
#include "base/xml.h"
#include "providers/common/page_mark.h"

/* All pages of a list, with the pauses and repetitions of their requests: as long as a cloud may take to terminate a
 * machine. The longest known list, of Azure's prices, is read in two minutes, so one that is throttled ends too. */
#define PAGE_WALK_MS ((int64_t)10 * 60 * 1000)
/* In all; clouds give at most 1,000 entries a page. */
#define PAGE_WALK_MAX 10000
/* Pages in a row without a new entry. Clouds that filter after they have cut the pages send empty ones, but not
 * hundreds. */
#define PAGE_WALK_EMPTY_MAX 100

struct page_walk {
    struct page_mark mark;
    int64_t limit_ms, deadline_ms; /* deadline: monotonic, for every request of the list (http_req.deadline_ms) */
    VEC_OF(uint64_t) seen;         /* the pages' entries, as hashes */
    int empty;                     /* pages in a row that brought nothing new */
};
/* w: zeroed. limit_ms 0: PAGE_WALK_MS. */
void page_walk_begin(struct page_walk *w, int64_t limit_ms);
void page_walk_clear(struct page_walk *w);

/* The entries of a page, without its token, as a number that page_walk_next compares. Of JSON: the arrays and objects
 * of the reply, because names of pages and requests are texts. */
uint64_t page_walk_json(json_t *reply);
uint64_t page_walk_xml(const struct xml_node *set);

/* After a page of these entries, before the one that the cloud calls `next`. what: begins the message. -GP_EENDPOINT:
 * the time is over. -GP_EPROTO: the pages go round, bring nothing new, or are too many. */
int page_walk_next(struct page_walk *w, const char *what, uint64_t entries, const char *next, struct gp_error *err);
/* After a request that failed: r, or, where the time is over, the error that names the limit. err: of the request, not
 * NULL. */
int page_walk_failed(const struct page_walk *w, const char *what, int r, struct gp_error *err);

#endif
