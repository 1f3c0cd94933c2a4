/* use_c BUNDLE: the C ABI of a library that is linked. */
#include <kbundle/kbundle_describe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void Check(kb_error* error, const char* doing) {
  if (error == NULL) return;
  fprintf(stderr, "%s: %d: %s\n", doing, kb_error_code(error), kb_error_message(error));
  exit(1);
}

static void Tell(void* state, int32_t severity, const char* message) {
  fprintf((FILE*)state, "%s: %s\n", severity == KB_LOG_WARNING ? "warning" : "info", message);
}

/* Bytes that are held: the last word on whether all came back. */
static size_t held = 0;

static void* Allocate(void* state, size_t size, size_t alignment) {
  *(size_t*)state += size;
  return aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

static void Release(void* state, void* memory, size_t size, size_t alignment) {
  (void)alignment;
  *(size_t*)state -= size;
  free(memory);
}

int main(int count, char** words) {
  const kb_allocator allocator = {Allocate, Release, &held};
  const int64_t dims[] = {3, 5};
  const kb_tensor x_spec = {1, 12 /* f32 */, 2, dims, NULL};
  kb_problem_spec spec;
  kb_open_options options;
  kb_bundle* bundle = NULL;
  kb_plan* plan = NULL;
  kb_result shape;
  size_t shapes = 0;
  int64_t workspace = -1;
  char *variant = NULL, *selected = NULL;
  const kb_explanation* why = NULL;
  float x[15], y[15];
  void* operands[] = {x};
  void* results[] = {y};
  int i;
  size_t legal = 0, row;

  if (count < 2) return 2;
  memset(&spec, 0, sizeof spec);
  spec.operands = &x_spec;
  spec.operand_count = 1;
  for (i = 0; i < 15; ++i) x[i] = (float)i - 7, y[i] = -1;

  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.path = words[1];
  options.allocator = &allocator;
  Check(kb_bundle_open_with(&options, &bundle), "open");
  if (held == 0) return 1;
  Check(kb_explanation_make(bundle, "twice.forward", &spec, KB_DEVICE_HOST, NULL, 0, &why),
        "explain");
  for (row = 0; row < why->candidate_count; ++row) legal += why->candidates[row]->legal != 0;
  Check(kb_results(bundle, "twice.forward", &spec, &shape, 1, &shapes), "results");
  Check(kb_workspace_bytes(bundle, "twice.forward", &spec, KB_DEVICE_HOST, &workspace),
        "workspace");
  Check(kb_select(bundle, "twice.forward", &spec, KB_DEVICE_HOST, NULL, 0, &selected), "select");
  if (shapes != 1 || shape.rank != 2 || shape.dims[1] != 5 || workspace != 0) return 1;
  kb_log_to(Tell, stderr);
  Check(kb_plan_make(bundle, "twice.forward", &spec, KB_DEVICE_HOST, -1, &plan), "plan");
  Check(kb_plan_variant(plan, &variant), "variant");
  Check(kb_plan_launch_host(plan, NULL, operands, results, NULL), "launch");
  printf("%s %g\n", variant, y[14]);
  for (i = 0; i < 15; ++i) {
    if (y[i] != 2 * x[i]) return 1;
  }
  if (strcmp(why->chosen, variant) != 0 || strcmp(selected, variant) != 0 || legal == 0) return 1;
  kb_string_free(selected);
  kb_explanation_free(why);
  kb_string_free(variant);
  kb_plan_release(plan);
  Check(kb_bundle_close(bundle), "close");
  kb_bundle_release(bundle);
  return held == 0 ? 0 : 1;
}
