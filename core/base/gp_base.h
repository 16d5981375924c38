/* SPDX-License-Identifier: Apache-2.0 */
/* First include of every file: attributes, ownership macros, allocation that aborts, banned calls. */
#ifndef GP_BASE_H
#define GP_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GP_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define GP_MUST_CHECK __attribute__((warn_unused_result))
#define GP_UNUSED __attribute__((unused))
#define GP_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define GP_MIN(a, b) ((a) < (b) ? (a) : (b))
#define GP_MAX(a, b) ((a) > (b) ? (a) : (b))

/* GP_CLEANUP(fn) T x = ...;  runs fn(&x) when x leaves scope. Always initialise at declaration. */
#define GP_CLEANUP(fn) __attribute__((cleanup(fn)))

/* GP_STEAL(p): hands ownership over: yields p's value and sets p to NULL. */
#define GP_STEAL(p)                   \
    __extension__({                   \
        __typeof__(p) *gp_s_ = &(p);  \
        __typeof__(p) gp_v_ = *gp_s_; \
        *gp_s_ = NULL;                \
        gp_v_;                        \
    })

/* Allocation: never returns NULL; prints one line and aborts when memory is out. The state on disk is
 * valid at all times, so an abort is like any other crash. */
void *xmalloc(size_t size);
void *xcalloc(size_t n, size_t size);
void *xrealloc(void *p, size_t size);
_Noreturn void out_of_memory(void); /* for what a library could not allocate */
char *xstrdup(const char *s);       /* NULL in, NULL out */
char *xstrndup(const char *s, size_t n);
char *xasprintf(const char *fmt, ...) GP_PRINTF(1, 2);
char *xvasprintf(const char *fmt, va_list ap) GP_PRINTF(1, 0);

void gp_cleanup_free(void *pp); /* for GP_AUTO_FREE: frees *(void **)pp */
void gp_cleanup_fd(int *fd);    /* closes when >= 0 */
void gp_cleanup_file(FILE **f);
#define GP_AUTO_FREE GP_CLEANUP(gp_cleanup_free)
#define GP_AUTO_FD GP_CLEANUP(gp_cleanup_fd)
#define GP_AUTO_FILE GP_CLEANUP(gp_cleanup_file)

/* Calls with a safer form: a compile error here. */
#define GP_BANNED(name) gp_banned_##name##_use_core_base_instead
#undef strcpy
#define strcpy(...) GP_BANNED(strcpy)
#undef strcat
#define strcat(...) GP_BANNED(strcat)
#undef strncpy
#define strncpy(...) GP_BANNED(strncpy)
#undef strncat
#define strncat(...) GP_BANNED(strncat)
#undef sprintf
#define sprintf(...) GP_BANNED(sprintf)
#undef vsprintf
#define vsprintf(...) GP_BANNED(vsprintf)
#undef strtok
#define strtok(...) GP_BANNED(strtok)
#undef atoi
#define atoi(...) GP_BANNED(atoi)
#undef atol
#define atol(...) GP_BANNED(atol)
#undef atof
#define atof(...) GP_BANNED(atof)
#undef system
#define system(...) GP_BANNED(system)
#undef popen
#define popen(...) GP_BANNED(popen)

#endif
