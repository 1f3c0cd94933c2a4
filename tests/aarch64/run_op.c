/* run_op BUNDLE OP FOLDER [ATTRIBUTE=KIND:VALUE[,VALUE..]].. -- [DTYPE:DIM,DIM,..].. : runs an op on
 * the CPU. KIND: bool, int, float, text, ints or floats. Operand i is read from FOLDER/operand<i>,
 * result i written to FOLDER/result<i>; "-" stands for an operand that is left out. Prints the
 * variant, then number, dtype and dims of each result. Results that are written to an operand are
 * named behind a second "--": RESULT=OPERAND. */
#include <kbundle/kbundle_c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16 };
static const int kBytes[] = {0, 1, 1, 1, 2, 2, 4, 4, 8,
                             8, 2, 2, 4, 8, 1, 1, 1}; /* of kb_tensor's dtypes */

static void Check(kb_error* error) {
  if (error == NULL) return;
  fprintf(stderr, "%d: %s\n", kb_error_code(error), kb_error_message(error));
  exit(1);
}

static void* File(const char* folder, const char* kind, size_t number, const char* mode,
                  void* memory, size_t bytes) {
  char path[1024];
  FILE* file;
  snprintf(path, sizeof path, "%s/%s%zu", folder, kind, number);
  file = fopen(path, mode);
  if (file == NULL ||
      (*mode == 'r' ? fread(memory, 1, bytes, file) : fwrite(memory, 1, bytes, file)) != bytes ||
      fclose(file) != 0) {
    perror(path);
    exit(1);
  }
  return memory;
}

/* Aligned, and filled with ones that are NaN in every float. */
static void* Memory(size_t bytes) {
  void* memory = NULL;
  if (posix_memalign(&memory, 256, bytes + 1) != 0) exit(1);
  return memset(memory, 0xff, bytes);
}

static size_t Parse(const char* text, kb_tensor* tensor, int64_t* dims) {
  size_t bytes;
  char* end;
  tensor->present = 1;
  tensor->dtype = (int32_t)strtol(text, &end, 10);
  tensor->dims = dims;
  for (bytes = (size_t)kBytes[tensor->dtype]; *end == ':' || *end == ',';
       bytes *= (size_t)dims[tensor->rank++]) {
    if (end[1] == '\0') break;
    dims[tensor->rank] = strtoll(end + 1, &end, 10);
  }
  return bytes;
}

/* NAME=KIND:VALUE[,VALUE..], whose text is cut up and kept. */
static void ParseAttribute(char* word, kb_attribute* one) {
  static const char* const kKinds[] = {"bool", "int", "float", "text", "ints", "floats"};
  char* kind = strchr(word, '=');
  char* value = strchr(word, ':');
  int64_t* integers = calloc(strlen(word), sizeof *integers);
  double* numbers = calloc(strlen(word), sizeof *numbers);
  if (kind == NULL || value == NULL || integers == NULL || numbers == NULL) exit(2);
  *kind++ = *value++ = '\0';
  one->name = word;
  while (strcmp(kKinds[one->kind], kind) != 0) {
    if (++one->kind > KB_FLOAT_ARRAY) exit(2);
  }
  one->text = value;
  one->integers = integers;
  one->numbers = numbers;
  for (; *value != '\0' && one->kind != KB_TEXT; value += *value == ',') {
    char* end;
    integers[one->count] = strtoll(value, &end, 10);
    numbers[one->count++] = strtod(value, &end);
    if (end == value) exit(2);
    value = end;
  }
  one->integer = integers[0];
  one->number = numbers[0];
}

int main(int count, char** words) {
  kb_tensor tensors[MOST];
  kb_attribute attributes[MOST];
  kb_result shapes[MOST];
  kb_problem_spec spec;
  int64_t dims[MOST][KB_MOST_RANK];
  void *operands[MOST] = {0}, *results[MOST] = {0};
  size_t sizes[MOST] = {0}, result_count = 0, i;
  kb_bundle* bundle;
  kb_plan* plan;
  char* variant;
  int word = 4, axis;

  if (count < 5) return 2;
  memset(tensors, 0, sizeof tensors);
  memset(attributes, 0, sizeof attributes);
  memset(&spec, 0, sizeof spec);
  spec.operands = tensors;
  spec.attributes = attributes;
  for (; word < count && strcmp(words[word], "--") != 0; ++word)
    ParseAttribute(words[word], &attributes[spec.attribute_count++]);
  for (++word; word < count && strcmp(words[word], "--") != 0; ++word) {
    i = spec.operand_count++;
    if (strcmp(words[word], "-") == 0) continue;
    sizes[i] = Parse(words[word], &tensors[i], dims[i]);
    operands[i] = File(words[3], "operand", i, "rb", Memory(sizes[i]), sizes[i]);
  }
  Check(kb_bundle_open(words[1], NULL, &bundle));
  Check(kb_results(bundle, words[2], &spec, shapes, MOST, &result_count));
  for (i = 0; i < result_count; ++i) {
    if (!shapes[i].present) continue;
    sizes[i] = (size_t)kBytes[shapes[i].dtype];
    for (axis = 0; axis < shapes[i].rank; ++axis) sizes[i] *= (size_t)shapes[i].dims[axis];
    results[i] = Memory(sizes[i]);
  }
  for (++word; word < count; ++word) {
    char* operand;
    i = strtoul(words[word], &operand, 10) % MOST;
    if (results[i] != NULL) results[i] = operands[strtoul(operand + 1, NULL, 10) % MOST];
  }
  Check(kb_plan_make(bundle, words[2], &spec, KB_DEVICE_HOST, -1, &plan));
  Check(kb_plan_variant(plan, &variant));
  puts(variant);
  for (i = 0; i < result_count; ++i) {
    if (!shapes[i].present) continue;
    printf("%zu %d", i, shapes[i].dtype);
    for (axis = 0; axis < shapes[i].rank; ++axis) printf(" %lld", (long long)shapes[i].dims[axis]);
    puts("");
  }
  Check(kb_plan_launch_threads(plan, 2, operands, results,
                               Memory((size_t)kb_plan_workspace_bytes(plan))));
  for (i = 0; i < result_count; ++i) {
    if (results[i] != NULL) File(words[3], "result", i, "wb", results[i], sizes[i]);
  }
  return 0;
}
