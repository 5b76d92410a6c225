/* The profiles of MIG: how large GPU instances are, where they can lie, and what they are called. */
#ifndef GPUSIM_MIG_PROFILES_H
#define GPUSIM_MIG_PROFILES_H

#include "machine.h"

#include <stddef.h>

/* PROFILE_NUMBERS: how many driver 580 knows; a number beyond them is not a valid argument. */
enum { MEMORY_SLICES = 8, PROFILE_NUMBERS = 17, ARCHITECTURE_AMPERE = 7 };

struct profile {
    unsigned number, id, slices, memory_slices, instances;
    unsigned places, step; /* so many places, which lie this far apart */
    const char *attribute; /* of its name */
};

const struct profile *profile_of_number(unsigned number);
const struct profile *profile_of_id(unsigned id);
const struct profile *profile_of_mig(const struct mig *mig);

/* Compute instances are numbered like GPU instances of as many slices; their ids are these numbers. */
const struct profile *compute_profile(unsigned number);
const struct profile *compute_profile_of(const struct mig *mig);

void profile_name(const struct profile *profile, const struct gpu *gpu, char *name, size_t size);
void device_name(const struct mig *mig, const struct gpu *gpu, char *name, size_t size);

#endif
