/* SPDX-License-Identifier: Apache-2.0 */
/* The regions that a cloud's reply names. Pure; any thread. */
#ifndef GP_COMMON_PLACES_H
#define GP_COMMON_PLACES_H

#include "base/error.h"
#include "base/str.h"

/* Far more regions than a cloud has: AWS, Azure, Google and Alibaba Cloud document fewer than 100 each (2026). Each is
 * looked at by calls of its own, and held against the others. */
#define PLACES_MAX 500

/* Adds a region once. GP_EPROTO: `list`, such as "ec2 DescribeRegions", names more than PLACES_MAX. */
int places_add(struct strv *ret, const char *region, const char *list, struct gp_error *err);

#endif
