// Resize part of an image stored as raw pixels.
#pragma once
#include "source.h"
#include "workspace.h"

Status resize_raw(Bytes bytes, Row &row, Workspace &work, const Instructions &instructions);

// Shrink the full image into `work.shrunk`; see shrink_jpeg.
Status shrink_raw(Bytes bytes, Row &row, Workspace &work);
