# kbundle_add_bundle(NAME PATHS path... [OUTPUT file.kb] [TARGETS target...] [PROBLEMS file.jsonl] [BUNDLE_NAME name]
#                    [OPTIONS option...] [DESTINATION folder [COMPONENT component]])
#
# Builds a bundle with `kbundle build` as the target NAME, which is part of `all`.
#   PATHS        folders of op families, or manifests
#   OUTPUT       by default NAME.kb in the current build folder; the target's property KBUNDLE_FILE has it
#   TARGETS      sm_90a, x86-64-v3, host, ..; by default the command's
#   PROBLEMS     problems to list beside those of the manifests
#   BUNDLE_NAME  by which programs refer to the bundle; by default OUTPUT's name without .kb
#   OPTIONS      further ones of `kbundle build`, such as --lean
#   DESTINATION  where `cmake --install` puts the bundle; COMPONENT as install() takes it
#
# Built again when a file that the last build read has changed (the command lists them), when a manifest, or what a build
# looks for beside one (tuning/, algorithms/, ran_on.jsonl), has changed or joined, and when the command itself has changed.
function(kbundle_add_bundle name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "OUTPUT;PROBLEMS;BUNDLE_NAME;DESTINATION;COMPONENT" "PATHS;TARGETS;OPTIONS")
  foreach(unknown IN LISTS arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "kbundle_add_bundle(${name}): no argument is called '${unknown}'; there are PATHS, OUTPUT, TARGETS, "
                        "PROBLEMS, BUNDLE_NAME, OPTIONS, DESTINATION and COMPONENT")
  endforeach()
  if(NOT arg_PATHS)
    message(FATAL_ERROR "kbundle_add_bundle(${name}): PATHS is missing: name a folder with a manifest, or a manifest")
  endif()
  if(NOT arg_OUTPUT)
    set(arg_OUTPUT "${name}.kb")
  endif()
  cmake_path(ABSOLUTE_PATH arg_OUTPUT BASE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}" NORMALIZE)

  set(options ${arg_OPTIONS})
  set(joined "")
  foreach(path IN LISTS arg_PATHS)
    cmake_path(ABSOLUTE_PATH path NORMALIZE)
    if(NOT EXISTS "${path}")
      message(FATAL_ERROR "kbundle_add_bundle(${name}): PATHS names ${path}, which is not there")
    endif()
    list(APPEND paths "${path}")
    set(folder "${path}")
    if(NOT IS_DIRECTORY "${path}")
      cmake_path(GET path PARENT_PATH folder)
    endif()
    file(GLOB_RECURSE found CONFIGURE_DEPENDS "${folder}/*.toml" "${folder}/ran_on.jsonl" "${folder}/tuning/*.jsonl"
         "${folder}/algorithms/*")
    list(APPEND joined ${found})
  endforeach()
  if(arg_TARGETS)
    list(JOIN arg_TARGETS "," targets)
    list(APPEND options --target "${targets}")
  endif()
  if(arg_PROBLEMS)
    cmake_path(ABSOLUTE_PATH arg_PROBLEMS NORMALIZE)
    list(APPEND options --problems "${arg_PROBLEMS}")
  endif()
  if(arg_BUNDLE_NAME)
    list(APPEND options --name "${arg_BUNDLE_NAME}")
  endif()
  # The command leaves an equal bundle alone; make would then ask again each time.
  set(touch "")
  if(CMAKE_GENERATOR MATCHES "Make")
    set(touch COMMAND "${CMAKE_COMMAND}" -E touch "${arg_OUTPUT}")
  endif()

  add_custom_command(OUTPUT "${arg_OUTPUT}"
    COMMAND kbundle::command build ${paths} -o "${arg_OUTPUT}" ${options} --depfile "${arg_OUTPUT}.d"
    ${touch}
    DEPENDS kbundle::command ${joined}
    DEPFILE "${arg_OUTPUT}.d"
    COMMENT "Bundle ${name}"
    VERBATIM)
  add_custom_target(${name} ALL DEPENDS "${arg_OUTPUT}")
  set_target_properties(${name} PROPERTIES KBUNDLE_FILE "${arg_OUTPUT}")

  if(arg_DESTINATION)
    set(component "")
    if(arg_COMPONENT)
      set(component COMPONENT "${arg_COMPONENT}")
    endif()
    install(FILES "${arg_OUTPUT}" DESTINATION "${arg_DESTINATION}" ${component})
  endif()
endfunction()
