# Compiles the sources of a folder together, up to `largest` at a time: parsing headers is most of the work. Paths are
# relative to the current folder.
function(compile_together target largest)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  foreach(source IN LISTS ARGN)
    string(REGEX MATCH "^[^/]+" folder "${source}")
    list(APPEND seen_in_${folder} "${source}")
    list(LENGTH seen_in_${folder} count)
    math(EXPR group "(${count} - 1) / ${largest}")
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${folder}_${group}")
  endforeach()
endfunction()
