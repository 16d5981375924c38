/* SPDX-License-Identifier: Apache-2.0 */
/* The throw-away child of local_doctor. Internal to providers/local. */
#ifndef GP_LOCAL_DOCTOR_H
#define GP_LOCAL_DOCTOR_H

/* Tries one way ("root" or "user") step by step; prints one line; 0 when it works. */
int doctor_main(const char *way);

#endif
