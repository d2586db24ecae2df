// Resize part of an image stored as raw pixels.
#pragma once
#include "source.h"
#include "workspace.h"

Status resize_raw(Bytes bytes, Row &row, Workspace &work, const Instructions &instructions);
