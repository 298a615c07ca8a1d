/* A stand-in for libnvidia-ml.so.1 that reads every answer, live, from the file named by NVML_STUB_FILE.
 *
 * Lines of the file: `count 2`, `init 0` (the code that nvmlInit returns), and for each GPU
 * `0.uuid GPU-...`, `0.name ...`, `0.total`, `0.reserved`, `0.used` (bytes), `0.util` (percent), `0.power` (mW),
 * `0.temp` (C), `0.clocks` (bits), `0.lost 1`, and `0.error.memory 3` (or utilization, power, temperature, clocks:
 * the code that the call returns), `0.delay_ms.memory 2000`. What is not in the file has a default.
 * A lost GPU stays lost, also when the file says 0 again, until nvmlInit is called once more.
 * Build with -DWITHOUT_MEMORY_V2, -DWITHOUT_EVENT_REASONS, -DWITHOUT_TEMPERATURE_V or -DWITHOUT_UTILIZATION for a
 * driver that lacks that function. There are no process lists and no PCIe counters: nobody may ask for them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, LOST = 15, VERSION_MISMATCH = 25 };
enum { MOST = 16 };

typedef struct { int index; } Device;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } MemoryV2;
typedef struct { unsigned int gpu, memory; } Utilization;
typedef struct { unsigned int version; int sensor; int temperature; } TemperatureV;

static Device devices[MOST];
static int fallen[MOST];
static int initialized;

static int find(const char *key, char *out, size_t size) {
    const char *path = getenv("NVML_STUB_FILE");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256];
    size_t length = strlen(key);
    int found = 0;
    if (!file) return 0;
    while (!found && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) || line[length] != ' ') continue;
        line[strcspn(line, "\r\n")] = 0;
        snprintf(out, size, "%s", line + length + 1);
        found = 1;
    }
    fclose(file);
    return found;
}

static long long number(const char *key, long long otherwise) {
    char text[256];
    return find(key, text, sizeof text) ? atoll(text) : otherwise;
}

static long long of(const Device *device, const char *name, long long otherwise) {
    char key[64];
    snprintf(key, sizeof key, "%d.%s", device->index, name);
    return number(key, otherwise);
}

static int is_lost(int index) {
    Device device = {index};
    if (of(&device, "lost", 0)) fallen[index] = 1;
    return fallen[index];
}

static int check(const Device *device, const char *call) {
    char name[64];
    if (!initialized) return UNINITIALIZED;
    if (device < devices || device >= devices + MOST) return INVALID;
    snprintf(name, sizeof name, "delay_ms.%s", call);
    usleep((useconds_t)of(device, name, 0) * 1000);
    if (is_lost(device->index)) return LOST;
    snprintf(name, sizeof name, "error.%s", call);
    return (int)of(device, name, OK);
}

static void bytes(const Device *device, MemoryV2 *out) {
    out->total = (unsigned long long)of(device, "total", 25769803776LL);
    out->reserved = (unsigned long long)of(device, "reserved", 536870912LL);
    out->used = (unsigned long long)of(device, "used", 0);
    out->free = out->total - out->reserved - out->used;
}

int nvmlInitWithFlags(unsigned int flags) {
    int code = (int)number("init", OK);
    (void)flags;
    if (code) return code;
    for (int i = 0; i < MOST; i++) devices[i].index = i, fallen[i] = 0;
    initialized++;
    return OK;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
    if (!initialized) return UNINITIALIZED;
    initialized--;
    return OK;
}

const char *nvmlErrorString(int code) { return code == OK ? "Success" : "stub error"; }

int nvmlSystemGetDriverVersion(char *out, unsigned int size) {
    if (!initialized) return UNINITIALIZED;
    snprintf(out, size, "999.99.stub");
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned int *out) {
    if (!initialized) return UNINITIALIZED;
    *out = (unsigned int)number("count", 1);
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, Device **out) {
    if (!initialized) return UNINITIALIZED;
    if (index >= (unsigned int)number("count", 1) || index >= MOST) return INVALID;
    if (is_lost((int)index)) return LOST;
    *out = &devices[index];
    return OK;
}

int nvmlDeviceGetUUID(Device *device, char *out, unsigned int size) {
    char key[64], text[256];
    int code = check(device, "uuid");
    if (code) return code;
    snprintf(key, sizeof key, "%d.uuid", device->index);
    if (!find(key, text, sizeof text)) snprintf(text, sizeof text, "GPU-stub-%d", device->index);
    snprintf(out, size, "%s", text);
    return OK;
}

int nvmlDeviceGetName(Device *device, char *out, unsigned int size) {
    char key[64], text[256];
    int code = check(device, "name");
    if (code) return code;
    snprintf(key, sizeof key, "%d.name", device->index);
    if (!find(key, text, sizeof text)) snprintf(text, sizeof text, "Stub GPU");
    snprintf(out, size, "%s", text);
    return OK;
}

int nvmlDeviceGetMemoryInfo(Device *device, Memory *out) {
    MemoryV2 all;
    int code = check(device, "memory");
    if (code) return code;
    bytes(device, &all);
    out->total = all.total;
    out->free = all.free;
    out->used = all.used + all.reserved;
    return OK;
}

#ifndef WITHOUT_MEMORY_V2
int nvmlDeviceGetMemoryInfo_v2(Device *device, MemoryV2 *out) {
    int code;
    if (out->version != (sizeof(MemoryV2) | 2u << 24)) return VERSION_MISMATCH;
    code = check(device, "memory");
    if (!code) bytes(device, out);
    return code;
}
#endif

#ifndef WITHOUT_UTILIZATION
int nvmlDeviceGetUtilizationRates(Device *device, Utilization *out) {
    int code = check(device, "utilization");
    if (code) return code;
    out->gpu = (unsigned int)of(device, "util", 0);
    out->memory = 0;
    return OK;
}
#endif

int nvmlDeviceGetPowerUsage(Device *device, unsigned int *out) {
    int code = check(device, "power");
    if (!code) *out = (unsigned int)of(device, "power", 70000);
    return code;
}

int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned int *out) {
    int code = check(device, "temperature");
    if (sensor != 0) return INVALID;
    if (!code) *out = (unsigned int)of(device, "temp", 40);
    return code;
}

#ifndef WITHOUT_TEMPERATURE_V
int nvmlDeviceGetTemperatureV(Device *device, TemperatureV *out) {
    int code;
    if (out->version != (sizeof(TemperatureV) | 1u << 24)) return VERSION_MISMATCH;
    code = check(device, "temperature");
    if (!code) out->temperature = (int)of(device, "temp", 40);
    return code;
}
#endif

#ifndef WITHOUT_EVENT_REASONS
int nvmlDeviceGetCurrentClocksEventReasons(Device *device, unsigned long long *out) {
    int code = check(device, "clocks");
    if (!code) *out = (unsigned long long)of(device, "clocks", 1);
    return code;
}
#endif

int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, unsigned long long *out) {
    int code = check(device, "clocks");
    if (!code) *out = (unsigned long long)of(device, "clocks", 1);
    return code;
}
